//! Walks through the syntax of one file and notes its modules, names and paths.

use std::mem;
use std::path::PathBuf;

use syn::visit::{self, Visit};
use syn::{
    Arm, Attribute, Block, Expr, ExprBlock, ExprCall, ExprPath, Field, FieldValue, File, ImplItem, Item, ItemMacro, ItemMod,
    ItemUse, Local, Macro, Meta, PatIdent, Path, Stmt, StmtMacro, TraitItem, TypeParam, UseTree, Variant, VisRestricted,
    Visibility,
};

use super::cfg;
use super::tokens::{self, name};
use super::tree::{Binding, Kind, ModuleId, ScopeId, Segments, Tree, Use};

/// What a file leads to.
#[derive(Default)]
pub(crate) struct Declared {
    /// Modules in files of their own, with the folder of their children.
    pub(crate) declared: Vec<(ModuleId, PathBuf)>,
    /// The files and folders of tests.
    pub(crate) left_out: Vec<PathBuf>,
}

pub(crate) struct Collector<'a> {
    tree: &'a mut Tree,
    module: ModuleId,
    scope: ScopeId,
    /// Where the files of the current module's children are.
    folder: PathBuf,
    found: Declared,
    failed: Option<String>,
}

impl<'a> Collector<'a> {
    /// Notes what is in the file of `module`, whose children are in `folder`.
    pub(crate) fn read(tree: &'a mut Tree, module: ModuleId, folder: PathBuf, file: &File) -> Result<Declared, String> {
        let scope = tree.modules[module].scope;
        let mut this = Self { tree, module, scope, folder, found: Declared::default(), failed: None };
        this.visit_file(file);
        this.failed.map_or(Ok(this.found), Err)
    }

    fn note(&mut self, path: Segments, line: usize, kind: Kind) {
        self.tree.uses.push(Use { scope: self.scope, path, line, kind });
    }

    fn note_path(&mut self, path: &Path, kind: Kind) {
        // `::a` is another crate's
        if path.leading_colon.is_none() {
            let line = path.segments.first().map_or(0, |first| first.ident.span().start().line);
            self.note(path.segments.iter().map(|segment| name(&segment.ident)).collect(), line, kind);
        }
        for segment in &path.segments {
            self.visit_path_arguments(&segment.arguments);
        }
    }

    fn note_all(&mut self, found: Vec<tokens::Found>) {
        for path in found {
            self.note(path.path, path.line, path.kind);
        }
    }

    /// Does `visit` in a scope inside the current one.
    fn inside(&mut self, visit: impl FnOnce(&mut Self)) {
        let inner = self.tree.add_scope(self.module, Some(self.scope));
        let outer = mem::replace(&mut self.scope, inner);
        visit(self);
        self.scope = outer;
    }

    fn module(&mut self, item: &ItemMod) {
        let called = name(&item.ident);
        if item.attrs.iter().any(|attribute| attribute.path().is_ident("path")) {
            let line = item.ident.span().start().line;
            self.failed.get_or_insert(format!("{line}: #[path] is not followed"));
        }
        let below = self.folder.join(&called);
        if cfg::is_of_tests(&item.attrs) {
            self.found.left_out.extend([below.with_extension("rs"), below]);
            return;
        }
        let Some((_, items)) = &item.content else {
            let (flat, folder) = (below.with_extension("rs"), below.join("mod.rs"));
            let file = if flat.exists() { flat } else { folder };
            let module = self.tree.add_module(Some(self.module), &called, Some(file));
            self.tree.bind(self.scope, called, Binding::Module(module));
            self.found.declared.push((module, below));
            return;
        };
        let module = self.tree.add_module(Some(self.module), &called, None);
        self.tree.bind(self.scope, called, Binding::Module(module));
        let scope = self.tree.modules[module].scope;
        let outer =
            (mem::replace(&mut self.module, module), mem::replace(&mut self.scope, scope), mem::replace(&mut self.folder, below));
        for item in items {
            self.visit_item(item);
        }
        (self.module, self.scope, self.folder) = outer;
    }

    fn import(&mut self, item: &ItemUse) {
        let is_private = match &item.vis {
            Visibility::Restricted(to) => to.path.is_ident("self"),
            Visibility::Public(_) => false,
            Visibility::Inherited => true,
        };
        if item.leading_colon.is_none() {
            self.import_tree(&item.tree, &mut Vec::new(), !is_private);
        }
    }

    fn import_tree(&mut self, tree: &UseTree, prefix: &mut Segments, is_reexport: bool) {
        let leaf = |this: &mut Self, ident: &syn::Ident, called: Option<&syn::Ident>| {
            let mut path = prefix.clone();
            let is_self = ident == "self" && !path.is_empty();
            if !is_self {
                path.push(name(ident));
            }
            let called = called.map(name).or_else(|| path.last().cloned()).unwrap_or_default();
            this.note(path.clone(), ident.span().start().line, Kind::Import { is_reexport });
            if called != "_" {
                this.tree.bind(this.scope, called, Binding::Import(path));
            }
        };
        match tree {
            UseTree::Name(leaf_name) => leaf(self, &leaf_name.ident, None),
            UseTree::Rename(renamed) => leaf(self, &renamed.ident, Some(&renamed.rename)),
            UseTree::Glob(glob) => {
                self.note(prefix.clone(), glob.star_token.span.start().line, Kind::Glob { is_reexport });
                self.tree.scopes[self.scope].globs.push(prefix.clone());
            }
            UseTree::Path(path) => {
                prefix.push(name(&path.ident));
                self.import_tree(&path.tree, prefix, is_reexport);
                prefix.pop();
            }
            UseTree::Group(group) => {
                for part in &group.items {
                    self.import_tree(part, prefix, is_reexport);
                }
            }
        }
    }

    /// A `macro_rules!`, or a macro's call.
    fn item_macro(&mut self, item: &ItemMacro) {
        if let Some(ident) = &item.ident {
            let (called, module) = (name(ident), self.module);
            self.tree.bind(self.scope, called.clone(), Binding::Item(module));
            if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) {
                self.tree.bind(self.tree.modules[0].scope, called.clone(), Binding::Item(module));
            }
            self.tree.macros.entry(called).or_default().push(module);
        }
        self.inside(|this| visit::visit_item_macro(this, item));
    }
}

/// The name that an item declares.
fn declared(item: &Item) -> Option<&syn::Ident> {
    Some(match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::TraitAlias(i) => &i.ident,
        Item::Type(i) => &i.ident,
        Item::Union(i) => &i.ident,
        _ => return None,
    })
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if let Item::Mod(module) = item {
            return self.module(module);
        }
        if cfg::is_of_tests(cfg::of_item(item)) {
            return;
        }
        if let Some(ident) = declared(item) {
            self.tree.bind(self.scope, name(ident), Binding::Item(self.module));
        }
        match item {
            Item::Use(import) => self.import(import),
            Item::Macro(item) => self.item_macro(item),
            Item::Verbatim(tokens) => self.note_all(tokens::paths(tokens.clone())),
            _ => self.inside(|this| visit::visit_item(this, item)),
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if !cfg::is_of_tests(cfg::of_impl_item(item)) {
            self.inside(|this| visit::visit_impl_item(this, item));
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        if !cfg::is_of_tests(cfg::of_trait_item(item)) {
            self.inside(|this| visit::visit_trait_item(this, item));
        }
    }

    fn visit_field(&mut self, field: &'ast Field) {
        if !cfg::is_of_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast Variant) {
        if !cfg::is_of_tests(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        if !cfg::is_of_tests(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if !cfg::is_of_tests(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_field_value(&mut self, field: &'ast FieldValue) {
        if !cfg::is_of_tests(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_stmt_macro(&mut self, statement: &'ast StmtMacro) {
        if !cfg::is_of_tests(&statement.attrs) {
            visit::visit_stmt_macro(self, statement);
        }
    }

    fn visit_expr_block(&mut self, block: &'ast ExprBlock) {
        if !cfg::is_of_tests(&block.attrs) {
            visit::visit_expr_block(self, block);
        }
    }

    fn visit_block(&mut self, block: &'ast Block) {
        if block.stmts.iter().any(|statement| matches!(statement, Stmt::Item(_))) {
            self.inside(|this| visit::visit_block(this, block));
        } else {
            visit::visit_block(self, block);
        }
    }

    fn visit_type_param(&mut self, parameter: &'ast TypeParam) {
        self.tree.scopes[self.scope].locals.insert(name(&parameter.ident));
        visit::visit_type_param(self, parameter);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast PatIdent) {
        let called = name(&pattern.ident);
        if called.starts_with(char::is_uppercase) && pattern.subpat.is_none() {
            // a constant, or a variant without fields
            self.note(vec![called], pattern.ident.span().start().line, Kind::Named);
        } else {
            self.tree.scopes[self.scope].locals.insert(called);
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        match &*call.func {
            Expr::Path(ExprPath { qself: None, path, .. }) => self.note_path(path, Kind::Called),
            function => self.visit_expr(function),
        }
        for argument in &call.args {
            self.visit_expr(argument);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        self.note_path(path, Kind::Named);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.note_path(&call.path, Kind::Macro);
        self.note_all(tokens::paths(call.tokens.clone()));
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let is_inert =
            ["allow", "cfg", "deprecated", "doc", "expect", "must_use", "warn"].iter().any(|a| attribute.path().is_ident(a));
        match &attribute.meta {
            Meta::List(list) if !is_inert => {
                self.note_path(&list.path, Kind::Macro);
                self.note_all(tokens::paths_of_attribute(list.tokens.clone()));
            }
            _ => {}
        }
    }

    // `pub(crate)` says who may see an item
    fn visit_vis_restricted(&mut self, _: &'ast VisRestricted) {}
}
