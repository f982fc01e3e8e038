//! Matrix products, convolutions, recurrent cells, attention.

use super::counted::{Counted, Operations, product};

/// The operations of a node; `None` if it is none of these, or its shapes are not known.
pub(crate) fn operations(node: &Counted<'_>) -> Option<Operations> {
    let flops = |flops: u64, others: u64| Some(Operations { flops, others });
    let each = |added: bool| Some(if added { node.made()? } else { 0 });
    match node.node.operator.as_str() {
        "MatMul" | "MatMulInteger" | "QLinearMatMul" | "MatMulInteger16" => flops(matmul(node, false)?, 0),
        "MatMulIntegerToFloat" => flops(matmul(node, false)?, each(node.has(6))?),
        "DynamicQuantizeMatMul" => flops(matmul(node, false)?, each(node.has(4))?),
        "FusedMatMul" => flops(matmul(node, node.node.int("transA").unwrap_or(0) != 0)?, 0),
        "Gemm" | "FusedGemm" | "QGemm" => {
            let bias = if node.node.operator == "QGemm" { 6 } else { 2 };
            flops(matmul(node, node.node.int("transA").unwrap_or(0) != 0)?, each(node.has(bias))?)
        }
        "MatMulNBits" => {
            let inner = u64::try_from(node.node.int("K")?).ok()?;
            flops(node.made()?.checked_mul(inner)?.checked_mul(2)?, 0)
        }
        "Conv" | "ConvInteger" | "FusedConv" => conv(node, 1, node.node.operator != "ConvInteger" && node.has(2)),
        "QLinearConv" => conv(node, 3, node.has(8)),
        "ConvTranspose" => {
            let [_, kernel @ ..] = node.input(1)? else { return None };
            flops(node.read()?.checked_mul(product(kernel))?.checked_mul(2)?, each(node.has(2))?)
        }
        // a coefficient of each class or target for each column
        "LinearClassifier" | "LinearRegressor" => {
            let rows = if let [rows, ..] = *node.output(0)? { rows as u64 } else { 1 };
            let coefficients = node.node.floats("coefficients")?.len() as u64;
            flops(rows.checked_mul(coefficients)?.checked_mul(2)?, 0)
        }
        "Einsum" => einsum(node),
        "LSTM" | "DynamicQuantizeLSTM" => recurrent(node, 4, 5),
        "GRU" => recurrent(node, 3, 5),
        "RNN" => recurrent(node, 1, 0),
        "Attention" | "MultiHeadAttention" | "GroupQueryAttention" | "QAttention" => attention(node),
        _ => None,
    }
}

/// Two for each element that is made and each of the inner axis.
fn matmul(node: &Counted<'_>, is_turned: bool) -> Option<u64> {
    let a = node.input(0)?;
    let inner = match (is_turned, a) {
        (true, [.., inner, _]) | (false, [.., inner]) => *inner as u64,
        _ => return None,
    };
    node.made()?.checked_mul(inner)?.checked_mul(2)
}

fn conv(node: &Counted<'_>, weight: usize, has_bias: bool) -> Option<Operations> {
    let [_, kernel @ ..] = node.input(weight)? else { return None };
    let made = node.made()?;
    let flops = made.checked_mul(product(kernel))?.checked_mul(2)?;
    Some(Operations { flops, others: if has_bias { made } else { 0 } })
}

/// Every label's length, for each pair of inputs.
fn einsum(node: &Counted<'_>) -> Option<Operations> {
    let equation: String = node.node.word("equation")?.chars().filter(|sign| !sign.is_whitespace()).collect();
    let terms: Vec<&str> = equation.split("->").next()?.split(',').collect();
    let mut labels: Vec<(char, usize)> = Vec::new();
    for (at, term) in terms.iter().enumerate() {
        let shape = node.input(at)?;
        if term.contains('.') || term.chars().count() != shape.len() {
            return None;
        }
        for (label, length) in term.chars().zip(shape) {
            match labels.iter_mut().find(|(known, _)| *known == label) {
                Some((_, known)) => *known = (*known).max(*length),
                None => labels.push((label, *length)),
            }
        }
    }
    let all = labels.iter().fold(1_u64, |product, (_, length)| product.saturating_mul(*length as u64));
    match terms.len() {
        0 => None,
        1 => Some(Operations { flops: 0, others: all }),
        inputs => Some(Operations { flops: all.checked_mul(2 * (inputs as u64 - 1))?, others: 0 }),
    }
}

/// The products of a step with the input and the state, for each gate; two biases and an activation of each gate, and what the cell
/// makes of them.
fn recurrent(node: &Counted<'_>, gates: u64, cell: u64) -> Option<Operations> {
    let [a, b, width] = *node.input(0)? else { return None };
    let hidden = match node.node.int("hidden_size") {
        Some(size) => u64::try_from(size).ok()?,
        None => *node.input(2)?.last()? as u64,
    };
    let directions = if node.node.word("direction") == Some("bidirectional") { 2 } else { 1 };
    let cells = product(&[a, b]).checked_mul(directions)?.checked_mul(hidden)?;
    let flops = cells.checked_mul(2 * gates)?.checked_mul(width as u64 + hidden)?;
    Some(Operations { flops, others: cells.checked_mul(3 * gates + cell)? })
}

/// Scores and their product with the values; for Microsoft's own, the projection before it; then the softmax of the scores.
fn attention(node: &Counted<'_>) -> Option<Operations> {
    let (query, made) = (node.input(0)?, node.output(0)?);
    let is_packed = matches!(node.node.operator.as_str(), "QAttention" | "Attention") && node.node.domain == "com.microsoft";
    let total = |at: usize| node.output(1).and_then(|present| present.get(at).copied());
    let (scores, key_width, value_width, heads, projected) = match (query, made) {
        ([rows, heads, tokens, head], [.., value]) if query.len() == 4 => {
            let seen = total(2).or_else(|| node.input(1)?.get(2).copied())?;
            (product(&[*rows, *heads, *tokens, seen]), *head as u64, *value as u64, 1, 0)
        }
        ([rows, tokens, ..], [.., value]) => {
            let heads = node.node.int("num_heads").or_else(|| node.node.int("q_num_heads"));
            let heads = u64::try_from(heads?).ok()?;
            let seen = match node.node.operator.as_str() {
                _ if is_packed => total(3).unwrap_or(*tokens),
                "GroupQueryAttention" => total(2).unwrap_or(*tokens),
                _ => total(2).or_else(|| node.input(1)?.get(1).copied()).unwrap_or(*tokens),
            };
            let projected = if is_packed { product(&[*rows, *tokens]).checked_mul(product(node.input(1)?))? * 2 } else { 0 };
            let width = if query.len() == 3 && !is_packed && node.has(1) { query[2] } else { *value };
            (product(&[*rows, *tokens, seen]), width as u64, *value as u64, heads, projected)
        }
        _ => return None,
    };
    let flops = scores.checked_mul(2)?.checked_mul(key_width + value_width)?.checked_add(projected)?;
    // scale, and the softmax: maximum, difference, exponential, sum, quotient
    Some(Operations { flops, others: scores.checked_mul(6 * heads)? })
}
