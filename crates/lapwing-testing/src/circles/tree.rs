//! The modules of one crate with their names, and the paths that their files contain, before these are followed.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// The index of a module.
pub(crate) type ModuleId = usize;
/// The index of a scope.
pub(crate) type ScopeId = usize;
/// A path's segments. The first may be `crate`, `self` or `super`.
pub(crate) type Segments = Vec<String>;

/// A crate.
#[derive(Default)]
pub(crate) struct Tree {
    /// The root is the first.
    pub(crate) modules: Vec<Module>,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) uses: Vec<Use>,
    /// The modules that define a macro of this name, which their children see without a path.
    pub(crate) macros: HashMap<String, Vec<ModuleId>>,
}

/// A module, inline ones too.
pub(crate) struct Module {
    /// Its path from the crate's root, without `crate`.
    pub(crate) name: Segments,
    pub(crate) parent: Option<ModuleId>,
    /// The module whose file it stands in: itself, or one above.
    pub(crate) file: ModuleId,
    pub(crate) path: PathBuf,
    pub(crate) scope: ScopeId,
}

/// Where names are declared: a module, an item, a block.
#[derive(Default)]
pub(crate) struct Scope {
    pub(crate) module: ModuleId,
    /// The one around it; `None` for a module's.
    pub(crate) outer: Option<ScopeId>,
    pub(crate) names: HashMap<String, Vec<Binding>>,
    pub(crate) globs: Vec<Segments>,
    /// Variables, parameters and generic parameters, which hide items.
    pub(crate) locals: HashSet<String>,
}

/// What a name stands for.
#[derive(Clone)]
pub(crate) enum Binding {
    Module(ModuleId),
    /// An item of this module.
    Item(ModuleId),
    Import(Segments),
}

/// A path in a file.
pub(crate) struct Use {
    pub(crate) scope: ScopeId,
    pub(crate) path: Segments,
    pub(crate) line: usize,
    pub(crate) kind: Kind,
}

/// What a path is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A type, a value, a pattern: a variable may hide it.
    Named,
    /// A function that is called: no variable is expected to have its name.
    Called,
    /// A macro that is called.
    Macro,
    /// An import, for others too if it is a re-export.
    Import { is_reexport: bool },
    /// An import of all that a module has.
    Glob { is_reexport: bool },
}

impl Tree {
    /// Adds a module without names.
    pub(crate) fn add_module(&mut self, parent: Option<ModuleId>, name: &str, file: Option<PathBuf>) -> ModuleId {
        let id = self.modules.len();
        let scope = self.add_scope(id, None);
        let above = parent.map(|parent| &self.modules[parent]);
        let mut full = above.map_or_else(Vec::new, |above| above.name.clone());
        if parent.is_some() {
            full.push(name.to_owned());
        }
        let (file, path) = match (file, above) {
            (None, Some(above)) => (above.file, above.path.clone()),
            (path, _) => (id, path.unwrap_or_default()),
        };
        self.modules.push(Module { name: full, parent, file, path, scope });
        id
    }

    pub(crate) fn add_scope(&mut self, module: ModuleId, outer: Option<ScopeId>) -> ScopeId {
        self.scopes.push(Scope { module, outer, ..Scope::default() });
        self.scopes.len() - 1
    }

    pub(crate) fn bind(&mut self, scope: ScopeId, name: String, binding: Binding) {
        self.scopes[scope].names.entry(name).or_default().push(binding);
    }

    /// Whether `module` is `above`, or below it.
    pub(crate) fn is_within(&self, module: ModuleId, above: ModuleId) -> bool {
        let mut at = Some(module);
        while let Some(this) = at {
            if this == above {
                return true;
            }
            at = self.modules[this].parent;
        }
        false
    }
}
