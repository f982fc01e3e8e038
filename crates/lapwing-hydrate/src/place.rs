//! Places in a JSON document: pointers (RFC 6901) in which one `*` is any element of a list.

/// A place, or with a `*` one in each element of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPlace {
    /// The way to it, or to the list.
    pub(crate) to: Vec<JsonStep>,
    /// The way from each element of that list on, if there is a `*`.
    pub(crate) in_each: Option<Vec<JsonStep>>,
}

/// One step: the name of a member, which is an index in a list.
pub(crate) type JsonStep = Box<str>;

impl JsonPlace {
    /// Reads a pointer. The error is the reason.
    pub(crate) fn parse(pointer: &str) -> Result<Self, &'static str> {
        let Some(rest) = pointer.strip_prefix('/') else {
            return Err("must be a JSON pointer, as in /parameters/user or /instances/*/driver_id");
        };
        let step = |part: &str| -> JsonStep { part.replace("~1", "/").replace("~0", "~").into() };
        let mut ways = vec![Vec::new()];
        for part in rest.split('/') {
            match ways.last_mut() {
                Some(way) if part != "*" => way.push(step(part)),
                _ => ways.push(Vec::new()),
            }
        }
        let mut ways = ways.into_iter();
        match (ways.next(), ways.next(), ways.next()) {
            (Some(to), in_each, None) => Ok(Self { to, in_each }),
            _ => Err("must have at most one *"),
        }
    }

    /// Apart: the way to what holds the last member, and that member's name. `None` if it ends in an index or in `*`.
    pub(crate) fn member(&self) -> Option<(Self, JsonStep)> {
        let mut holder = self.clone();
        let name = holder.in_each.as_mut().unwrap_or(&mut holder.to).pop()?;
        let is_index = name.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty();
        (!is_index).then_some((holder, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_each_element() {
        let way = |steps: &[&str]| steps.iter().map(|step| JsonStep::from(*step)).collect::<Vec<_>>();
        let place = JsonPlace::parse("/instances/*/a~1b/0").unwrap();
        assert_eq!((place.to.clone(), place.in_each.clone()), (way(&["instances"]), Some(way(&["a/b", "0"]))));
        assert_eq!(place.member(), None);
        let (holder, name) = JsonPlace::parse("/instances/*/f").unwrap().member().unwrap();
        assert_eq!((holder.in_each, &*name), (Some(Vec::new()), "f"));
        let (holder, name) = JsonPlace::parse("/f").unwrap().member().unwrap();
        assert_eq!((holder.to, holder.in_each, &*name), (Vec::new(), None, "f"));
        assert_eq!(JsonPlace::parse("/instances/*").unwrap().member(), None);
        assert!(JsonPlace::parse("instances").is_err() && JsonPlace::parse("").is_err());
        assert!(JsonPlace::parse("/a/*/*/b").is_err());
    }
}
