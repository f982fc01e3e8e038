//! One run of a program: step after step, only those that the wanted outputs need, and each value only as long as it is read.

use crate::attributes::Reason;
use crate::graph::{ElementBudget, Program, Step};
use crate::operator::Scratch;
use crate::value::Value;

/// What watches a run: each step with what it read and made.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(&Step, &[Option<&Value>], &[Value]);

/// Runs a program; the result has the wanted outputs.
pub(crate) fn run(
    program: &Program,
    inputs: Vec<Value>,
    wanted: &[bool],
    scratch: &mut Scratch,
    watch: Watch<'_>,
) -> Result<Vec<Value>, Reason> {
    let mut values: Vec<Option<Value>> = vec![None; program.constants.len()];
    program.inputs.iter().zip(inputs).for_each(|(number, value)| values[*number] = Some(value));
    let outputs = || program.outputs.iter().zip(wanted).filter(|(_, wanted)| **wanted).map(|(number, _)| *number);
    let last_readers = last_readers(program, outputs());
    let mut budget = ElementBudget::new();
    for (at, step) in program.steps.iter().enumerate() {
        if !last_readers.is_needed[at] {
            continue;
        }
        let value = |number: usize| values[number].as_ref().or(program.constants[number].as_ref());
        let read: Vec<Option<&Value>> = step.inputs.iter().map(|number| number.and_then(value)).collect();
        let fails = |reason: Reason| format!("{}: {reason}", step.named);
        let made = step.operator.run(&read, scratch).map_err(fails)?;
        budget.take(&made).map_err(fails)?;
        watch(step, &read, &made);
        for (number, value) in step.outputs.iter().zip(made) {
            if let Some(number) = number {
                values[*number] = Some(value);
            }
        }
        for number in step.inputs.iter().flatten().filter(|number| last_readers.of_value[**number] == at) {
            values[*number] = None;
        }
    }
    let output = |number: usize| {
        let value = values[number].clone().or_else(|| program.constants[number].clone());
        value.ok_or_else(|| "an output was not made".to_owned())
    };
    outputs().map(output).collect()
}

/// Which steps a run needs, and after which step each value is read no more.
struct LastReaders {
    is_needed: Vec<bool>,
    of_value: Vec<usize>,
}

fn last_readers(program: &Program, outputs: impl Iterator<Item = usize>) -> LastReaders {
    const NOT_READ: usize = usize::MAX;
    // an output is read by whoever asked for it, behind all steps
    let behind = program.steps.len();
    let mut of_value = vec![NOT_READ; program.constants.len()];
    outputs.for_each(|number| of_value[number] = behind);
    let mut is_needed = vec![false; behind];
    for (at, step) in program.steps.iter().enumerate().rev() {
        is_needed[at] = step.outputs.iter().flatten().any(|number| of_value[*number] != NOT_READ);
        for number in step.inputs.iter().flatten().filter(|_| is_needed[at]) {
            if of_value[*number] == NOT_READ {
                of_value[*number] = at;
            }
        }
    }
    LastReaders { is_needed, of_value }
}
