//! Recurrent networks, attention, embeddings and transforms of signals.

use super::lengths::{Symbols, shown};
use crate::shaped::Length;
use crate::view::{Shapes, View};

/// `LSTM`, `GRU`, `RNN`: all states, then the last ones.
pub(crate) fn recurrent(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let x = view.required(0)?;
    let directions = symbols.of(if view.node.word("direction") == Some("bidirectional") { 2 } else { 1 });
    let hidden = match view.node.int("hidden_size") {
        Some(size) => symbols.of(size),
        None => view.shape(2).and_then(|recurrence| recurrence.last().cloned()).unwrap_or_else(|| symbols.fresh()),
    };
    let is_batch_first = view.node.int("layout").unwrap_or(0) != 0;
    let (steps, rows) = match x {
        None => (symbols.fresh(), symbols.fresh()),
        Some([rows, steps, _]) if is_batch_first => (steps.clone(), rows.clone()),
        Some([steps, rows, _]) => (steps.clone(), rows.clone()),
        Some(shape) => return Err(format!("takes 3 axes, not the shape {}", shown(shape))),
    };
    // weights are transposed in DynamicQuantizeLSTM
    if let (Some([.., width]), Some([_, _, inner])) = (x, view.shape(1))
        && view.node.domain.is_empty()
        && matches!((width, inner), (Length::Value(a), Length::Value(b)) if a != b)
    {
        return Err(format!("takes {inner} columns, not the shape {}", shown(x.unwrap_or(&[]))));
    }
    let (all, last) = if is_batch_first {
        (vec![rows.clone(), steps, directions.clone(), hidden.clone()], vec![rows, directions, hidden])
    } else {
        (vec![steps, directions.clone(), rows.clone(), hidden.clone()], vec![directions, rows, hidden])
    };
    Ok(vec![Some(all), Some(last.clone()), Some(last)])
}

/// `MultiHeadAttention`: rows, tokens, and the width of the values; then keys and values with those before them.
pub(crate) fn multi_head(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(query) = view.required(0)? else { return Ok(vec![]) };
    let heads = symbols.of(view.node.int("num_heads").filter(|heads| *heads > 0).ok_or("has no num_heads")?);
    let (rows, tokens) = match query {
        [rows, tokens, ..] => (rows, tokens),
        _ => return Err(format!("takes queries of the shape {}", shown(query))),
    };
    let (width, new, key_width) = match (query, view.shape(1), view.shape(2)) {
        ([_, _, _, _, head], _, _) => (symbols.mul(&heads, head), tokens.clone(), symbols.mul(&heads, head)),
        ([_, _, query], Some([_, new, key]), Some([_, _, width])) => {
            let _ = query;
            (width.clone(), new.clone(), key.clone())
        }
        // keys and values of a cross attention come with their heads
        ([_, _, query], _, Some([_, heads, new, head])) => (symbols.mul(heads, head), new.clone(), query.clone()),
        _ => return Ok(vec![Some(vec![rows.clone(), tokens.clone(), symbols.fresh()])]),
    };
    let total = behind(view, 6, &new, symbols);
    let (key, value) = (symbols.div(&key_width, &heads), symbols.div(&width, &heads));
    let present = |head: Length, total: &Length| Some(vec![rows.clone(), heads.clone(), total.clone(), head]);
    Ok(vec![Some(vec![rows.clone(), tokens.clone(), width]), present(key, &total), present(value, &total)])
}

/// The tokens of a cache, and those that are added.
fn behind(view: &View<'_>, past: usize, new: &Length, symbols: &mut Symbols) -> Length {
    match (view.has(past), view.shape(past)) {
        (false, _) => new.clone(),
        (true, Some([_, _, before, _])) => symbols.add(before, new),
        (true, _) => symbols.fresh(),
    }
}

/// `GroupQueryAttention`. With a cache of fixed length, which is shared by input and output, the sum is an upper bound that no file
/// tells from the other; so the cache's length is open.
pub(crate) fn group_query(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(query) = view.required(0)? else { return Ok(vec![]) };
    let [rows, tokens, width] = query else { return Err(format!("takes queries of the shape {}", shown(query))) };
    let positive = |name: &str| view.node.int(name).filter(|heads| (1..1 << 16).contains(heads));
    let heads = positive("num_heads").ok_or("has no num_heads")?;
    let groups = positive("kv_num_heads").ok_or("has no kv_num_heads")?;
    let (all, one, kv) = (symbols.of(heads + 2 * groups), symbols.of(heads), symbols.of(groups));
    let head = if view.has(1) { symbols.div(width, &one) } else { symbols.div(width, &all) };
    let (made, total) = (symbols.mul(&head, &one), behind(view, 3, tokens, symbols));
    let present = Some(vec![rows.clone(), kv, total, head]);
    Ok(vec![Some(vec![rows.clone(), tokens.clone(), made]), present.clone(), present])
}

/// ONNX's own `Attention`.
pub(crate) fn attention(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let (Some(query), Some(key), Some(value)) = (view.required(0)?, view.required(1)?, view.required(2)?) else {
        return Ok(vec![]);
    };
    let heads = |name: &str| view.node.int(name).filter(|heads| (1..1 << 16).contains(heads));
    let (output, [rows, groups, new, key_head, value_head]) = match (query, key, value) {
        ([rows, heads, tokens, _], [_, groups, new, key], [_, _, _, value]) => {
            let output = vec![rows.clone(), heads.clone(), tokens.clone(), value.clone()];
            (output, [rows, groups, new, key, value].map(Clone::clone))
        }
        ([rows, tokens, _], [_, new, key], [_, _, value]) => {
            let (query_heads, groups) = heads("q_num_heads").zip(heads("kv_num_heads")).ok_or("has no number of heads")?;
            let (query_heads, groups) = (symbols.of(query_heads), symbols.of(groups));
            let (key, value) = (symbols.div(key, &groups), symbols.div(value, &groups));
            let output = vec![rows.clone(), tokens.clone(), symbols.mul(&query_heads, &value)];
            (output, [rows.clone(), groups, new.clone(), key, value])
        }
        _ => return Err(format!("takes queries of the shape {} and keys of {}", shown(query), shown(key))),
    };
    let total = behind(view, 4, &new, symbols);
    let present = |head: Length| Some(vec![rows.clone(), groups.clone(), total.clone(), head]);
    Ok(vec![Some(output), present(key_head), present(value_head)])
}

/// Microsoft's `Attention` and `QAttention`: one weight makes queries, keys and values of one input.
pub(crate) fn packed_attention(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let (x, weight) = (view.required(0)?, view.required(1)?);
    let Some([rows, tokens, _]) = x else { return Ok(vec![None]) };
    let width = match (view.node.ints("qkv_hidden_sizes"), weight) {
        (Some([_, _, value]), _) => symbols.of(*value),
        (_, Some([_, all])) => symbols.div(all, &Length::Value(3)),
        _ => symbols.fresh(),
    };
    Ok(vec![Some(vec![rows.clone(), tokens.clone(), width])])
}

/// `EmbedLayerNormalization`: rows and tokens of the ids, the width of the table; then the mask's sums.
pub(crate) fn embed(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some([rows, tokens]) = view.required(0)? else { return Ok(vec![Some(symbols.some(3))]) };
    let width = view.shape(2).and_then(|table| table.last().cloned()).unwrap_or_else(|| symbols.fresh());
    let made = Some(vec![rows.clone(), tokens.clone(), width]);
    Ok(vec![made.clone(), Some(vec![rows.clone()]), made])
}

/// `STFT`: rows, frames, frequencies, and the two parts of a complex number.
pub(crate) fn stft(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let (signal, step) = (view.required(0)?, view.lengths(1));
    let Some([rows, length, ..]) = signal else { return Ok(vec![Some(symbols.some(4))]) };
    let frame = match (view.lengths(3).as_deref(), view.shape(2)) {
        (Some([frame]), _) => frame.clone(),
        (_, Some([frame])) => frame.clone(),
        _ => symbols.fresh(),
    };
    let frames = match step.as_deref() {
        Some([step]) => {
            let left = symbols.sub(length, &frame);
            let steps = symbols.div(&left, step);
            symbols.add(&steps, &Length::Value(1))
        }
        _ => symbols.fresh(),
    };
    let frequencies = if view.node.int("onesided").unwrap_or(1) == 0 {
        frame
    } else {
        let half = symbols.div(&frame, &Length::Value(2));
        symbols.add(&half, &Length::Value(1))
    };
    Ok(vec![Some(vec![rows.clone(), frames, frequencies, Length::Value(2)])])
}

/// `DFT`: the axis's length is that of the input, of `dft_length`, or half of it and one; the last axis has both parts.
pub(crate) fn dft(view: &View<'_>, symbols: &mut Symbols) -> Shapes {
    let Some(shape) = view.required(0)? else { return Ok(vec![None]) };
    let given = match (view.has(2), view.ints(2).as_deref()) {
        (true, Some([axis])) => *axis,
        (true, _) => return Ok(vec![Some(symbols.some(shape.len()))]),
        // an attribute before opset 20, whose default is another
        (false, _) => view.node.int("axis").unwrap_or(if view.node.version < 20 { 1 } else { -2 }),
    };
    let at = crate::view::axis(given, shape.len())?;
    let mut made = shape.to_vec();
    if view.has(1) {
        made[at] = match view.lengths(1).as_deref() {
            Some([length]) => length.clone(),
            _ => symbols.fresh(),
        };
    }
    if view.node.int("onesided").unwrap_or(0) != 0 {
        let half = symbols.div(&made[at], &Length::Value(2));
        made[at] = symbols.add(&half, &Length::Value(1));
    }
    if let Some(last) = made.last_mut() {
        *last = Length::Value(2);
    }
    Ok(vec![Some(made)])
}

/// `NonMaxSuppression`: row, class and box of each that is chosen.
pub(crate) fn chosen_boxes(_: &View<'_>, symbols: &mut Symbols) -> Shapes {
    Ok(vec![Some(vec![symbols.fresh(), Length::Value(3)])])
}
