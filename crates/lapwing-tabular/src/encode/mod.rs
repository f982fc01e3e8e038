//! Encoders of categories: `LabelEncoder`, `CategoryMapper`, `OneHotEncoder`.

mod mapping;
mod one_hot;

pub(crate) use self::mapping::{category_mapper, label_encoder};
pub(crate) use self::one_hot::one_hot_encoder;
