//! What is changed in one object, and why so.

use crate::ManifestError;
use crate::changes::Changes;
use crate::containers::add_containers;
use crate::found::{Found, find};
use crate::manifest::Edit;
use crate::options::{InjectOptions, NATIVE_SIDECARS, Way};
use crate::pod::{Declared, Object, Target, declared, policies, text};
use crate::reporting::report;

/// The changes of an object and of the Services that lead to it, and what a user has to know.
pub(crate) struct Plan {
    /// By the number of the document.
    pub(crate) edits: Vec<(usize, Edit)>,
    pub(crate) lines: Vec<String>,
    /// Whether the server is one that is known by name.
    pub(crate) is_known: bool,
}

/// Plans the injection into an object.
///
/// # Errors
///
/// Why nothing is to be injected, in a line.
pub(crate) fn plan(object: &Object, objects: &[Object], options: &InjectOptions) -> Result<Plan, String> {
    let found = find(object, objects, options)?;
    let (way, why) = way(&found, objects, options)?;
    if options.kubernetes < NATIVE_SIDECARS && matches!(object.kind(), "Job" | "CronJob") {
        return Err("before Kubernetes 1.29 a sidecar would keep a Job from ending".to_owned());
    }
    let mut lines = vec![format!(
        "{} in container {}, port {} ({})",
        found.serving.title(),
        found.serving.name,
        found.port.number,
        found.port.from
    )];
    let mut plan = Plan { edits: Vec::new(), lines: Vec::new(), is_known: found.serving.known.is_some() };
    let mut changes = Changes::of(object, way.name());
    let own = |error: ManifestError| error.to_string();
    match way {
        Way::Named => take_name(&found, &mut changes).map_err(own)?,
        Way::Redirect => {}
        Way::Service => change_services(&found, &mut plan, &mut lines).map_err(own)?,
    }
    lines.push(why);
    if options.reporting {
        lines.extend(report(&found, &mut changes).map_err(own)?);
    }
    lines.extend(others(&found));
    if options.gpu {
        changes.note_gpu();
        lines.push(
            "the sidecar sees the node's GPUs where their runtime heeds NVIDIA_VISIBLE_DEVICES of containers without one of their own; it \
             shares the server's, and its memory"
                .to_owned(),
        );
    }
    lines.extend(beside(&found, objects, way));
    add_containers(&found, way, options, &mut changes).map_err(own)?;
    let scrape = found.pod.annotations(object).is_none_or(|known| known.get("prometheus.io/scrape").is_none());
    let annotations = if scrape && !object.is_inference_service() {
        vec![("prometheus.io/scrape", "true".to_owned()), ("prometheus.io/port", found.admin.to_string())]
    } else {
        Vec::new()
    };
    let edits = changes.annotated(&found.pod.metadata, annotations).map_err(own)?;
    plan.edits.extend(edits.into_iter().map(|edit| (object.document, edit)));
    plan.lines = lines;
    Ok(plan)
}

/// The way, and the line that says why it is this one and what is left to do.
fn way(found: &Found, objects: &[Object], options: &InjectOptions) -> Result<(Way, String), String> {
    let name = found.name();
    let by_number: Vec<String> = found
        .routes
        .iter()
        .filter(|route| route.is_headless || matches!(route.target, Target::Number(_)))
        .map(|route| route.service.title())
        .collect();
    let services: Vec<String> = found.routes.iter().map(|route| route.service.title()).collect();
    let is_restricted = objects.iter().any(|object| {
        let enforced = object.value.get("metadata").and_then(|metadata| metadata.get("labels"));
        let enforced = enforced.and_then(|labels| text(labels, &["pod-security.kubernetes.io/enforce"]));
        object.kind() == "Namespace"
            && Some(object.name()) == found.object.namespace()
            && enforced.is_some_and(|level| matches!(level, "baseline" | "restricted"))
    });
    let way = options.way.unwrap_or({
        if name.is_some() && !services.is_empty() && by_number.is_empty() {
            Way::Named
        } else if is_restricted || found.is_in_mesh() {
            Way::Service
        } else {
            Way::Redirect
        }
    });
    let listen = found.listen;
    let why = match (way, name) {
        (Way::Named, None) => {
            return Err(format!(
                "port {} of its container {} has no name that Lapwing could take: use --way redirect",
                found.port.number, found.serving.name
            ));
        }
        (Way::Named, Some(name)) if services.is_empty() => format!(
            "way named: the port {name} is Lapwing's {listen} now; Services whose targetPort is {name} lead there, those with the number {} go on past it",
            found.port.number
        ),
        (Way::Named, Some(name)) if !by_number.is_empty() => format!(
            "way named: the port {name} is Lapwing's {listen} now; {} names the number {} and goes on past it: give it targetPort: {name}",
            by_number.join(", "),
            found.port.number
        ),
        (Way::Named, Some(name)) => {
            format!("way named: the port {name} is Lapwing's {listen} now, to which {} leads unchanged", services.join(", "))
        }
        (Way::Redirect, _) => {
            let reason = match (services.as_slice(), by_number.as_slice()) {
                ([], _) => "no Service is in the input".to_owned(),
                (_, []) => format!("asked for, though {} leads to the port by its name", services.join(", ")),
                (_, numbers) => format!("{} leads to the pod's own port", numbers.join(", ")),
            };
            format!(
                "way redirect ({reason}): what comes to port {} from outside the pod goes to Lapwing's {listen}; no Service changes. Needs NET_ADMIN in \
                 an init container, which the pod security levels baseline and restricted refuse: use --way named or --way service there",
                found.port.number
            )
        }
        (Way::Service, _) if services.is_empty() => format!(
            "way service: Lapwing listens on {listen}, and no Service is in the input: change the targetPort of each that leads to this pod to {listen}"
        ),
        (Way::Service, _) => format!("way service: {} leads to Lapwing's {listen} now", services.join(", ")),
    };
    Ok((way, why))
}

/// The pod's named port gets Lapwing's number: so it is found by whoever resolves names of ports. Kubernetes before 1.33 does not look for
/// them in sidecars of its own (kubernetes/kubernetes#128850), nor do some network plugins. Its probes stay with the server.
fn take_name(found: &Found, changes: &mut Changes) -> Result<(), ManifestError> {
    let container = found.container();
    let ports = declared(found.serving.container);
    let Some(port) = ports.iter().find(|port| port.number == found.port.number && port.name.is_some()) else { return Ok(()) };
    let path = |parts: &[&str]| -> Vec<String> {
        container.iter().cloned().chain(parts.iter().map(|part| (*part).to_owned())).collect()
    };
    changes.replace(&path(&["ports", &port.at.to_string(), "containerPort"]), &found.listen)?;
    let probes = ["readinessProbe", "livenessProbe", "startupProbe"].map(|probe| vec![probe]);
    let hooks = [vec!["lifecycle", "postStart"], vec!["lifecycle", "preStop"]];
    for (place, kind) in probes.iter().chain(&hooks).flat_map(|place| ["httpGet", "tcpSocket"].map(|kind| (place, kind))) {
        let place = [place.as_slice(), &[kind, "port"]].concat();
        if text(found.serving.container, &place) == port.name {
            changes.replace(&path(&place), &found.port.number)?;
        }
    }
    Ok(())
}

/// Services lead to Lapwing's port, each with a record of its own.
fn change_services(found: &Found, plan: &mut Plan, lines: &mut Vec<String>) -> Result<(), ManifestError> {
    let mut done: Vec<(usize, &[String])> = Vec::new();
    for route in &found.routes {
        let at = (route.service.document, route.service.path.as_slice());
        if done.contains(&at) {
            continue;
        }
        done.push(at);
        let mut changes = Changes::of(route.service, Way::Service.name());
        for route in found.routes.iter().filter(|other| (other.service.document, other.service.path.as_slice()) == at) {
            let port = ["spec".to_owned(), "ports".to_owned(), route.at.to_string()];
            changes.set(&port, "targetPort", &found.listen)?;
        }
        let edits = changes.annotated(&["metadata".to_owned()], Vec::new())?;
        plan.edits.extend(edits.into_iter().map(|edit| (route.service.document, edit)));
        lines.push(format!("{} is changed: its targetPort is {}", route.service.title(), found.listen));
    }
    Ok(())
}

/// Lines about ports that stay as they are.
fn others(found: &Found) -> Vec<String> {
    let ports = declared(found.serving.container);
    let grpc = found.serving.known.and_then(|known| known.grpc);
    let other = ports.iter().find(|port| {
        port.number != found.port.number && (Some(port.number) == grpc || port.name.is_some_and(|name| name.contains("grpc")))
    });
    let line = |port: &Declared| {
        format!("its port {} for gRPC goes on past Lapwing; to profile that one instead: --port {}", port.number, port.number)
    };
    other.map(line).into_iter().collect()
}

/// Lines about what else of the input is concerned.
fn beside(found: &Found, objects: &[Object], way: Way) -> Vec<String> {
    let ports = if way == Way::Redirect { found.admin.to_string() } else { format!("{} and {}", found.listen, found.admin) };
    let policy = |policy: &&Object| format!("{} names the ports that may be reached: add {ports}", policy.title());
    policies(objects, found.object, &found.pod).iter().map(policy).collect()
}
