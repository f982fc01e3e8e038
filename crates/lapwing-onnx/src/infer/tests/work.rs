//! The work of small calls, counted by hand.

use super::build::{graph, input, ints, model, node, weight};

#[test]
fn products_are_two_for_each_multiply_add() {
    let made = graph(&model(
        17,
        &[input("x: n s 8")],
        &[weight("w", &[8, 4]), weight("b", &[4])],
        &[node("a = MatMul x w", &[]), node("c = Add a b", &[]), node("y = Softmax c", &[])],
    ));
    let work = made.work(&made.input_shapes(2, 3).unwrap()).unwrap();
    let (rows, float) = (6, 4);
    assert_eq!(work.flops, 2 * rows * 8 * 4);
    assert_eq!(work.other_ops, rows * 4 + 5 * rows * 4);
    // read and written by each of the nodes, then the least of all
    let (x, row) = (rows * 8 * float, rows * 4 * float);
    assert_eq!(work.bytes, (x + 32 * float + row) + (row + 4 * float + row) + (row + row));
    assert_eq!(work.min_bytes, x + row + (32 + 4) * float);
    assert!(work.uncounted.is_empty() && made.parameters == 36);
    assert_eq!(made.flops(2, 3), Some(work.flops));
    let fault = made.work(&[vec![2, 3, 9]]).unwrap_err().to_string();
    assert_eq!(fault, "x: expected an axis of length 8, got the shape [2, 3, 9]");
}

#[test]
fn what_is_not_counted_is_named() {
    let nodes = [node("a = example.Unheard x", &[]), node("b = NonZero x", &[]), node("y = Relu a", &[])];
    let made = graph(&model(17, &[input("x: n 4")], &[], &nodes));
    let work = made.work(&[vec![2, 4]]).unwrap();
    let named: Vec<_> = work.uncounted.iter().map(|(operator, times)| (operator.as_str(), *times)).collect();
    assert_eq!((named, work.misses_products), (vec![("NonZero", 1), ("Relu", 1), ("Unheard", 1)], true));
    assert_eq!(made.flops(1, 1), None);
}

#[test]
fn convolutions_and_recurrent_cells_are_counted() {
    let conv = graph(&model(17, &[input("x: n 3 8 8")], &[weight("w", &[4, 3, 3, 3])], &[node("y = Conv x w", &[])]));
    assert_eq!(conv.flops(2, 1), Some(2 * (2 * 4 * 6 * 6) * 27));
    let cells = [weight("w", &[1, 12, 5]), weight("r", &[1, 12, 3])];
    let lstm = graph(&model(17, &[input("x: t n 5")], &cells, &[node("y = LSTM x w r", &[("hidden_size", &[3])])]));
    assert_eq!(lstm.work(&[vec![7, 2, 5]]).unwrap().flops, 2 * 7 * 2 * 12 * (5 + 3));
    // a table that is looked up in: the rows that are read
    let table = graph(&model(
        17,
        &[input("x: n")],
        &[weight("t", &[100, 8]), ints("i", &[2], &[3, 4])],
        &[node("rows = Shape x", &[]), node("c = Cast x", &[("to", &[7])]), node("y = Gather t c", &[])],
    ));
    assert_eq!(table.work(&[vec![5]]).unwrap().min_bytes, 5 * 4 + 5 * 8 * 4 + 5 * 8 * 4);
}
