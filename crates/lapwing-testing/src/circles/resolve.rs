//! Follows paths to the modules that define their items.

use std::collections::BTreeMap;

use super::tree::{Binding, Kind, ModuleId, ScopeId, Segments, Tree, Use};

/// The uses of one file's items by another: user, used, and the places by the items' names. A place is a module of the file and a line.
pub(crate) type Edges = BTreeMap<(ModuleId, ModuleId), BTreeMap<String, Vec<usize>>>;

/// What a path leads to.
#[derive(Clone, PartialEq, Eq)]
enum Target {
    Module(ModuleId),
    Item(ModuleId, String),
}

struct Resolver<'a> {
    tree: &'a Tree,
    /// Imports and globs that are being followed: they may lead back to themselves.
    following: Vec<(ScopeId, String, usize)>,
}

/// The uses between the files of a crate.
pub(crate) fn edges(tree: &Tree) -> Edges {
    let mut resolver = Resolver { tree, following: Vec::new() };
    let mut edges = Edges::new();
    for used in &tree.uses {
        let from = tree.modules[tree.scopes[used.scope].module].file;
        for (module, item) in resolver.used(used, from) {
            let to = tree.modules[module].file;
            if to != from {
                edges.entry((from, to)).or_default().entry(item).or_default().push(used.line);
            }
        }
    }
    edges
}

impl Resolver<'_> {
    /// The items that a path uses, with their modules.
    fn used(&mut self, used: &Use, from: ModuleId) -> Vec<(ModuleId, String)> {
        if self.is_hidden(used) {
            return Vec::new();
        }
        let (Kind::Import { is_reexport } | Kind::Glob { is_reexport }) = used.kind else {
            let found = self.resolve(used.scope, &used.path);
            if found.is_empty() && used.kind == Kind::Macro {
                return self.textual_macro(used).into_iter().collect();
            }
            return items(found);
        };
        let is_glob = used.kind == Kind::Glob { is_reexport };
        if is_reexport {
            let through = if is_glob { &used.path[..] } else { &used.path[..used.path.len().saturating_sub(1)] };
            let modules = self.resolve(used.scope, through);
            if modules.iter().any(|target| matches!(target, Target::Module(m) if self.tree.is_within(*m, from))) {
                return Vec::new();
            }
        }
        let found = self.resolve(used.scope, &used.path);
        if !is_glob {
            return items(found);
        }
        let all = |target| match target {
            Target::Module(module) => self.has_items(module).then(|| (module, "*".to_owned())),
            Target::Item(module, name) => Some((module, name)),
        };
        found.into_iter().filter_map(all).collect()
    }

    /// Whether the path's first name is a variable, or a generic parameter.
    fn is_hidden(&self, used: &Use) -> bool {
        let (Kind::Named | Kind::Called, Some(first)) = (used.kind, used.path.first()) else { return false };
        let may_be = match first.starts_with(char::is_uppercase) {
            true => true,
            false => used.path.len() == 1 && used.kind == Kind::Named,
        };
        let mut scope = Some(used.scope);
        while let (true, Some(this)) = (may_be, scope) {
            if self.tree.scopes[this].locals.contains(first) {
                return true;
            }
            scope = self.tree.scopes[this].outer;
        }
        false
    }

    /// A macro that a module above defines before it declares this one.
    fn textual_macro(&self, used: &Use) -> Option<(ModuleId, String)> {
        let [name] = &used.path[..] else { return None };
        let by = self.tree.macros.get(name)?;
        let module = self.tree.scopes[used.scope].module;
        let above = by.iter().filter(|definer| self.tree.is_within(module, **definer));
        above.max_by_key(|definer| self.tree.modules[**definer].name.len()).map(|definer| (*definer, name.clone()))
    }

    fn has_items(&self, module: ModuleId) -> bool {
        let names = &self.tree.scopes[self.tree.modules[module].scope].names;
        names.values().flatten().any(|binding| matches!(binding, Binding::Item(_)))
    }

    fn resolve(&mut self, scope: ScopeId, path: &[String]) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let here = self.tree.scopes[scope].module;
        let mut targets = match first.as_str() {
            "crate" => vec![Target::Module(0)],
            "self" => vec![Target::Module(here)],
            "super" => self.above(here),
            "Self" => Vec::new(),
            _ => self.lexical(scope, first),
        };
        for name in rest {
            let modules: Vec<_> =
                targets.iter().filter_map(|t| if let Target::Module(m) = t { Some(*m) } else { None }).collect();
            if modules.is_empty() {
                // a type's or trait's own
                return targets;
            }
            targets = match name.as_str() {
                "super" => modules.iter().flat_map(|module| self.above(*module)).collect(),
                "self" => continue,
                _ => self.members(&modules, name),
            };
        }
        targets
    }

    fn above(&self, module: ModuleId) -> Vec<Target> {
        self.tree.modules[module].parent.map(Target::Module).into_iter().collect()
    }

    /// What these modules have by this name. One that no syntax shows is made by a macro in the first of them.
    fn members(&mut self, modules: &[ModuleId], name: &str) -> Vec<Target> {
        let mut found = Vec::new();
        for module in modules {
            found.extend(self.in_scope(self.tree.modules[*module].scope, name));
        }
        if found.is_empty() && !modules.iter().any(|module| self.is_known(*module, name)) {
            found.push(Target::Item(modules[0], name.to_owned()));
        }
        found
    }

    /// Whether the module has the name, if only from another crate.
    fn is_known(&self, module: ModuleId, name: &str) -> bool {
        self.tree.scopes[self.tree.modules[module].scope].names.contains_key(name)
    }

    /// What a name stands for in a scope, or in those around it.
    fn lexical(&mut self, scope: ScopeId, name: &str) -> Vec<Target> {
        let mut at = Some(scope);
        while let Some(this) = at {
            let found = self.in_scope(this, name);
            if !found.is_empty() {
                return found;
            }
            at = self.tree.scopes[this].outer;
        }
        Vec::new()
    }

    fn in_scope(&mut self, scope: ScopeId, name: &str) -> Vec<Target> {
        let tree = self.tree;
        let here = &tree.scopes[scope];
        let mut found = Vec::new();
        for (i, binding) in here.names.get(name).into_iter().flatten().enumerate() {
            match binding {
                Binding::Module(module) => found.push(Target::Module(*module)),
                Binding::Item(module) => found.push(Target::Item(*module, name.to_owned())),
                Binding::Import(path) => found.extend(self.follow((scope, name.to_owned(), i), |this| this.resolve(scope, path))),
            }
        }
        if found.is_empty() && !here.names.contains_key(name) {
            for (i, glob) in here.globs.iter().enumerate() {
                found.extend(self.follow((scope, format!("{name}*"), i), |this| this.through(scope, glob, name)));
            }
        }
        found.dedup();
        found
    }

    /// What a name stands for in the modules that a glob imports.
    fn through(&mut self, scope: ScopeId, glob: &Segments, name: &str) -> Vec<Target> {
        let mut found = Vec::new();
        for target in self.resolve(scope, glob) {
            if let Target::Module(module) = target {
                found.extend(self.in_scope(self.tree.modules[module].scope, name));
            }
        }
        found
    }

    fn follow(&mut self, step: (ScopeId, String, usize), onwards: impl FnOnce(&mut Self) -> Vec<Target>) -> Vec<Target> {
        if self.following.contains(&step) {
            return Vec::new();
        }
        self.following.push(step);
        let found = onwards(self);
        self.following.pop();
        found
    }
}

fn items(targets: Vec<Target>) -> Vec<(ModuleId, String)> {
    let item = |target| match target {
        Target::Item(module, name) => Some((module, name)),
        Target::Module(_) => None,
    };
    targets.into_iter().filter_map(item).collect()
}
