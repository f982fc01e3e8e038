//! The routes that the user names as safe to repeat.

use lapwing_protocol::matches_glob;

/// Routes by their names, and patterns with `*`.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedRoutes(Vec<String>);

impl NamedRoutes {
    /// Those of a checked configuration.
    pub(crate) fn new(routes: &[String]) -> Self {
        Self(routes.to_vec())
    }

    /// Whether a request is on one of them: by `route`, as `/stats` names it, or by a pattern of that or of the path itself.
    pub(crate) fn has(&self, route: &str, method: &str, path: &str) -> bool {
        let fits = |named: &String| {
            if !named.contains('*') {
                return named == route;
            }
            let (own, glob) = named.split_once(' ').unwrap_or_default();
            matches_glob(named.as_bytes(), route.as_bytes()) || (own == method && matches_glob(glob.as_bytes(), path.as_bytes()))
        };
        self.0.iter().any(fits)
    }
}
