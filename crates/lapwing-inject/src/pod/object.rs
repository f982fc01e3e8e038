//! Objects in documents and lists, and the pod that an object describes.

use serde_json::Value;

/// An object of Kubernetes in a document.
#[derive(Clone, Debug)]
pub(crate) struct Object<'a> {
    /// The number of its document.
    pub(crate) document: usize,
    /// From the document's root: empty, or in a list `items` and a number.
    pub(crate) path: Vec<String>,
    pub(crate) value: &'a Value,
}

/// The pod that an object describes.
#[derive(Clone, Debug)]
pub(crate) struct Pod<'a> {
    /// From its object to what has the pod's labels and annotations.
    pub(crate) metadata: Vec<String>,
    /// From its object to its containers' parent.
    pub(crate) spec: Vec<String>,
    pub(crate) value: &'a Value,
    pub(crate) labels: Option<&'a Value>,
}

/// Kinds with a pod in them: where its template is, which has `metadata` and `spec`.
const TEMPLATES: [(&str, &[&str]); 9] = [
    ("Deployment", &["spec", "template"]),
    ("StatefulSet", &["spec", "template"]),
    ("DaemonSet", &["spec", "template"]),
    ("ReplicaSet", &["spec", "template"]),
    ("ReplicationController", &["spec", "template"]),
    ("Job", &["spec", "template"]),
    ("CronJob", &["spec", "jobTemplate", "spec", "template"]),
    ("Pod", &[]),
    ("PodTemplate", &["template"]),
];
/// The groups of those kinds; other groups have kinds of the same names.
const GROUPS: [&str; 3] = ["v1", "apps/v1", "batch/v1"];

/// The objects of documents, those of lists one by one.
pub(crate) fn objects<'a>(documents: impl Iterator<Item = &'a Value>) -> Vec<Object<'a>> {
    let mut found = Vec::new();
    for (document, value) in documents.enumerate() {
        match value.get("items").and_then(Value::as_array) {
            Some(list) if value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List")) => {
                let object = |(at, value)| Object { document, path: vec!["items".to_owned(), format!("{at}")], value };
                found.extend(list.iter().enumerate().map(object));
            }
            _ => found.push(Object { document, path: Vec::new(), value }),
        }
    }
    found
}

impl<'a> Object<'a> {
    pub(crate) fn kind(&self) -> &'a str {
        text(self.value, &["kind"]).unwrap_or_default()
    }

    pub(crate) fn group(&self) -> &'a str {
        text(self.value, &["apiVersion"]).unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &'a str {
        text(self.value, &["metadata", "name"]).or_else(|| text(self.value, &["metadata", "generateName"])).unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> Option<&'a str> {
        text(self.value, &["metadata", "namespace"])
    }

    /// Its kind and name, as commands take and reports show them.
    pub(crate) fn title(&self) -> String {
        format!("{}/{}", self.kind(), self.name())
    }

    /// Whether it is KServe's description of a model, from which KServe makes the pod.
    pub(crate) fn is_inference_service(&self) -> bool {
        self.kind() == "InferenceService" && self.group().starts_with("serving.kserve.io/")
    }

    /// Its pod; `None` if this kind has none, or none that is known.
    pub(crate) fn pod(&self) -> Option<Pod<'a>> {
        if self.is_inference_service() {
            let value = self.value.get("spec")?.get("predictor")?;
            return Some(Pod { metadata: owned(&["metadata"]), spec: owned(&["spec", "predictor"]), value, labels: None });
        }
        let is_own = GROUPS.contains(&self.group());
        let (_, path) = TEMPLATES.iter().find(|(kind, _)| is_own && *kind == self.kind())?;
        let template = path.iter().try_fold(self.value, |value, part| value.get(part))?;
        let below = |last: &str| owned(&[*path, &[last]].concat());
        Some(Pod {
            metadata: below("metadata"),
            spec: below("spec"),
            value: template.get("spec")?,
            labels: template.get("metadata").and_then(|metadata| metadata.get("labels")),
        })
    }
}

impl<'a> Pod<'a> {
    /// The annotations that its pods get.
    pub(crate) fn annotations(&self, object: &Object<'a>) -> Option<&'a Value> {
        self.metadata.iter().try_fold(object.value, |value, part| value.get(part))?.get("annotations")
    }

    /// Its containers that run beside one another, each with its number.
    pub(crate) fn containers(&self) -> impl Iterator<Item = (usize, &'a Value)> {
        items(self.value, "containers").enumerate()
    }

    /// All that runs while the pod serves: its sidecars of Kubernetes' own kind too (`restartPolicy: Always`).
    pub(crate) fn running(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let goes_on = |one: &&Value| text(one, &["restartPolicy"]) == Some("Always");
        items(self.value, "initContainers").filter(goes_on).chain(items(self.value, "containers"))
    }
}

fn owned(path: &[&str]) -> Vec<String> {
    path.iter().map(|part| (*part).to_owned()).collect()
}

/// The items of a list; none if it is not there.
pub(crate) fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// A text below a value.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(value, |value, part| value.get(part))?.as_str()
}

/// A port as a number, also one in quotes.
pub(crate) fn number(value: &Value) -> Option<u16> {
    let number = value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()))?;
    u16::try_from(number).ok().filter(|port| *port > 0)
}
