//! The commands that put Lapwing into the pods of a cluster, and those that run in them.

mod inject;
mod redirect;
mod webhook;

use clap::Subcommand;
use lapwing_console::leave::{self, LeaveArgs};

use self::inject::InjectArgs;
use self::redirect::RedirectArgs;
use self::webhook::WebhookArgs;

/// A command for Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum ClusterSub {
    /// Put Lapwing into the pods of Kubernetes manifests, or take it out again
    #[command(
        after_help = "Reads YAML or JSON, several documents and lists: Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob, Pod,\n\
        InferenceService. Prints them with the sidecar on standard output, and on standard error what was found, which way was\n\
        chosen and why, and what is left to do. All else stays as it is, to the byte. A second run changes nothing.\n\n\
        Ways:\n  named      the pod's named port becomes Lapwing's: for Services whose targetPort is a name\n  \
        redirect   an init container with NET_ADMIN redirects the port in the pod's network: no Service changes\n  \
        service    the Service's targetPort becomes Lapwing's port\n\n\
        Exit code: 0; 1 with --diff if something would change; 64 wrong usage; 65 if something cannot be injected: then\n\
        nothing is printed; 66 if a file cannot be read.\n\n\
        Examples:\n  kubectl get deploy ranker -o yaml | lapwing inject - | kubectl apply -f -\n  \
        lapwing inject ranker.yaml --diff\n  lapwing inject ranker.yaml --image registry.example/lapwing:0.1.0 --way named\n  \
        lapwing inject all.yaml --workload Deployment/ranker --container server --port 8000\n  \
        kubectl get deploy ranker -o yaml | lapwing inject --remove - | kubectl apply -f -"
    )]
    Inject(InjectArgs),
    /// Put Lapwing into pods when they are made: the admission webhook of a cluster
    #[command(
        after_help = "Answers AdmissionReview v1: POST /inject puts Lapwing into pods with the annotation lapwing.dev/inject: \"true\", POST\n\
        /inject/namespace into all but those with \"false\". lapwing.dev/container, lapwing.dev/port and lapwing.dev/way say what a pod does\n\
        not show; lapwing.dev/config-map, lapwing.dev/memory, lapwing.dev/gpu and lapwing.dev/reporting what its sidecar is like. A pod into\n\
        which nothing can be injected is made without Lapwing, with a warning. It asks the API server nothing.\n\n\
        Examples:\n  lapwing webhook --tls-certificate /tls/tls.crt --tls-key /tls/tls.key --image registry.example/lapwing:0.1.0"
    )]
    Webhook(WebhookArgs),
    /// Lead what comes to a port from outside to another, in the network of this pod: what an injected init container runs
    #[command(
        after_help = "Writes one rule of nftables for IPv4 and IPv6 (Linux 5.2 and later); needs CAP_NET_ADMIN. What a process of the pod sends to the\n\
        port itself is not led elsewhere. Started again, it replaces the rule.\n\
        Exit code: 0; 71 if the kernel has no nftables; 77 without the capability.\n\n\
        Examples:\n  lapwing redirect --from 8000 --to 9463\n  lapwing redirect --end"
    )]
    Redirect(RedirectArgs),
    /// Tell a running Lapwing that its clients are to go elsewhere, as the preStop hook of its container
    #[command(
        after_help = "Requests are served on, but each connection ends with its next answer, and /readyz fails. So clients that keep connections are\n\
        gone before the server of the pod gets SIGTERM. `lapwing inject` writes the hook.\nExit code: 0; 69 if no Lapwing answers.\n\n\
        Examples:\n  lapwing leave\n  lapwing leave --wait-for 127.0.0.1:8000      in a pod without native sidecars: stay until the server has gone"
    )]
    Leave(LeaveArgs),
}

/// Runs a command; its exit code.
pub(crate) fn run(command: &ClusterSub) -> i32 {
    match command {
        ClusterSub::Inject(args) => inject::run(args),
        ClusterSub::Redirect(args) => redirect::run(args),
        ClusterSub::Webhook(args) => webhook::run(args),
        ClusterSub::Leave(args) => leave::run(args).into(),
    }
}
