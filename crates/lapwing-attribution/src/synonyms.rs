//! The usual names of the stages, folded as [`super::Rules`] folds names. A stage's own name is not listed here.

use lapwing_ledger::Stage;

/// The default names of each stage that an upstream may report.
pub(crate) const SYNONYMS: &[(Stage, &[&str])] = &[
    (
        Stage::Hydration,
        &[
            "hydrate",
            "hydrating",
            "featurehydration",
            "hydratefeatures",
            "feature",
            "features",
            "featurelookup",
            "featurefetch",
            "featurestore",
            "featureretrieval",
            "featureenrichment",
            "fetchfeature",
            "fetchfeatures",
            "getfeatures",
            "loadfeatures",
            "lookupfeatures",
            "retrievefeatures",
            "readfeatures",
            "getonlinefeatures",
            "onlinefeatures",
            "enrich",
            "enrichment",
        ],
    ),
    (
        Stage::Preprocessing,
        &[
            "preprocess",
            "preprocessor",
            "preproc",
            "pre",
            "prep",
            "prepare",
            "prepareinput",
            "prepareinputs",
            "tokenize",
            "tokenise",
            "tokenization",
            "tokenisation",
            "tokenizer",
            "tokenizing",
            "encodeinput",
            "encodeinputs",
            "transforminput",
            "inputtransform",
            "normalize",
            "normalise",
            "normalization",
            "normalisation",
            "resize",
            "decodeimage",
            "imagedecode",
            "featurize",
            "featurise",
            "vectorize",
            "vectorise",
            "computeinput",
        ],
    ),
    (
        Stage::Queue,
        &[
            "queued",
            "queueing",
            "queuing",
            "queuetime",
            "queuewait",
            "queuewaittime",
            "wait",
            "waiting",
            "waittime",
            "inqueue",
            "batchwait",
            "batchqueue",
            "batching",
            "schedulerwait",
            "timeinqueue",
        ],
    ),
    (
        Stage::Forward,
        &[
            "fwd",
            "forwardpass",
            "modelforward",
            "modelforwardpass",
            "forwardmodel",
            "model",
            "modelrun",
            "runmodel",
            "modelinference",
            "modelinfer",
            "modelpredict",
            "modelexecution",
            "modelexecute",
            "modelcompute",
            "inference",
            "infer",
            "runinference",
            "inferencetime",
            "predict",
            "prediction",
            "predicting",
            "compute",
            "computeinfer",
            "generate",
            "generation",
            "prefill",
            "decode",
            "sessionrun",
            "onnxruntimerun",
        ],
    ),
    (
        Stage::Postprocessing,
        &[
            "postprocess",
            "postprocessor",
            "postproc",
            "post",
            "detokenize",
            "detokenise",
            "detokenization",
            "detokenisation",
            "decodeoutput",
            "decodeoutputs",
            "outputdecode",
            "transformoutput",
            "outputtransform",
            "formatoutput",
            "formatresponse",
            "softmax",
            "argmax",
            "topk",
            "threshold",
            "thresholding",
            "calibrate",
            "calibration",
            "nms",
            "computeoutput",
        ],
    ),
    (Stage::Downstream, &["downstreamcall", "downstreamcalls", "calldownstream", "downstreamservice", "downstreamservices"]),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_folded_and_stand_for_one_stage_each() {
        let mut seen: HashSet<&str> = Stage::ALL.into_iter().map(Stage::name).collect();
        for name in SYNONYMS.iter().flat_map(|(_, names)| names.iter()) {
            assert!(name.bytes().all(|b| b.is_ascii_lowercase()), "{name}");
            assert!(seen.insert(name), "{name} is listed twice");
        }
        for total in ["total", "request", "app", "handler"] {
            assert!(!seen.contains(total));
        }
    }

    #[test]
    fn the_documentation_lists_these_names() {
        let fold = |name: &str| name.replace(['_', '-', '.', ' '], "").to_lowercase();
        let document = include_str!("../../../docs/REPORTING.md");
        for (stage, names) in SYNONYMS {
            let row = document.lines().find(|l| l.starts_with(&format!("| `{}` |", stage.name())));
            let row = row.unwrap_or_else(|| panic!("no row for {}", stage.name()));
            let listed: Vec<String> = row.split('`').skip(3).step_by(2).map(fold).collect();
            assert_eq!(listed, *names, "docs/REPORTING.md, {}", stage.name());
        }
    }
}
