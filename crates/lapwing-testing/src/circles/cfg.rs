//! Tells what exists in tests only.

use syn::punctuated::Punctuated;
use syn::{Attribute, ImplItem, Item, Meta, Token, TraitItem};

/// Whether one of these attributes is a `cfg` that holds in tests only.
pub(crate) fn is_of_tests(attributes: &[Attribute]) -> bool {
    let condition = |attribute: &Attribute| match attribute.path().is_ident("cfg") {
        true => attribute.parse_args::<Meta>().ok(),
        false => None,
    };
    attributes.iter().filter_map(condition).any(|condition| implies_test(&condition))
        || attributes.iter().any(|attribute| attribute.path().is_ident("test"))
}

fn implies_test(condition: &Meta) -> bool {
    let parts = |meta: &Meta| match meta {
        Meta::List(list) => list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok(),
        _ => None,
    };
    let path = condition.path();
    if path.is_ident("all") {
        parts(condition).is_some_and(|parts| parts.iter().any(implies_test))
    } else if path.is_ident("any") {
        parts(condition).is_some_and(|parts| !parts.is_empty() && parts.iter().all(implies_test))
    } else {
        path.is_ident("test")
    }
}

/// An item's attributes.
pub(crate) fn of_item(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::ForeignMod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::TraitAlias(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// The attributes of an item in an `impl`.
pub(crate) fn of_impl_item(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(i) => &i.attrs,
        ImplItem::Fn(i) => &i.attrs,
        ImplItem::Type(i) => &i.attrs,
        ImplItem::Macro(i) => &i.attrs,
        _ => &[],
    }
}

/// The attributes of an item in a trait.
pub(crate) fn of_trait_item(item: &TraitItem) -> &[Attribute] {
    match item {
        TraitItem::Const(i) => &i.attrs,
        TraitItem::Fn(i) => &i.attrs,
        TraitItem::Type(i) => &i.attrs,
        TraitItem::Macro(i) => &i.attrs,
        _ => &[],
    }
}
