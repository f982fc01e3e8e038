//! Captured work, launched as one: a request's whole way through the device.

use std::cell::RefCell;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeType};

use super::context::Device;
use super::error::{Result, check};
use super::stream::{Keep, RawStream, Stream};

/// How many nodes of which kind a graph has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Kernels.
    pub kernels: usize,
    /// Copies.
    pub copies: usize,
    /// Fills.
    pub fills: usize,
    /// Events recorded.
    pub events: usize,
    /// All others: the host's functions, waits, allocations. This layer makes none.
    pub others: usize,
}

impl NodeCounts {
    /// All nodes.
    #[must_use]
    pub fn total(&self) -> usize {
        self.kernels + self.copies + self.fills + self.events + self.others
    }
}

/// What a capture wrote down, before it can be launched.
pub(super) struct Template {
    device: Arc<Device>,
    handle: CUgraph,
}

impl Template {
    /// Takes over a graph that the driver gave; none where it gave null.
    pub(super) fn of(device: &Arc<Device>, handle: CUgraph) -> Option<Self> {
        (!handle.is_null()).then(|| Self { device: device.clone(), handle })
    }

    fn count(&self) -> Result<NodeCounts> {
        let mut length = 0_usize;
        // SAFETY: without a place for nodes, only their number is given.
        check("cuGraphGetNodes", unsafe { sys::cuGraphGetNodes(self.handle, std::ptr::null_mut(), &mut length) })?;
        let mut nodes: Vec<CUgraphNode> = vec![std::ptr::null_mut(); length];
        if length > 0 {
            // SAFETY: `nodes` has room for as many as `length` says.
            check("cuGraphGetNodes", unsafe { sys::cuGraphGetNodes(self.handle, nodes.as_mut_ptr(), &mut length) })?;
        }
        nodes.truncate(length);
        let mut counts = NodeCounts::default();
        for node in nodes {
            let mut kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
            // SAFETY: a node of this graph; `kind` is a valid place for a kind.
            check("cuGraphNodeGetType", unsafe { sys::cuGraphNodeGetType(node, &mut kind) })?;
            match kind {
                CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL => counts.kernels += 1,
                CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY => counts.copies += 1,
                CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET => counts.fills += 1,
                CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD => counts.events += 1,
                _ => counts.others += 1,
            }
        }
        Ok(counts)
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        // SAFETY: the handle is this one's; graphs made from it do not need it.
        let ended = self.device.bind().and_then(|()| check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(self.handle) }));
        self.device.note("a captured graph", ended);
    }
}

/// Captured work, ready to be launched again and again. It holds the memory, kernels and events that it names.
///
/// One thread at a time may use it: the driver's graphs are not made for more.
pub struct Graph {
    device: Arc<Device>,
    handle: CUgraphExec,
    counts: NodeCounts,
    /// Where it was launched: waited for before it goes. Also what keeps it to one thread at a time.
    launched: RefCell<Vec<Arc<RawStream>>>,
    /// After `launched` in time, not in this list: drop waits first.
    _kept: Vec<Keep>,
}

// SAFETY: the driver lets any thread use a graph's handle as long as no two do at once, which `RefCell` forbids here: a graph is
// not `Sync`. Nothing of it belongs to a thread: the context is made current in every call.
unsafe impl Send for Graph {}

impl Graph {
    pub(super) fn new(stream: &Stream, template: &Template) -> Result<Self> {
        let device = stream.device().clone();
        let kept = stream.held();
        let counts = template.count()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a graph of the current context (the capture's end made it current); `handle` is a valid place for a handle.
        check("cuGraphInstantiate", unsafe { sys::cuGraphInstantiateWithFlags(&mut handle, template.handle, 0) })?;
        let graph = Self { device, handle, counts, launched: RefCell::default(), _kept: kept };
        graph.launched.borrow_mut().push(stream.raw.clone());
        // SAFETY: the graph and the stream are of this context. So that the first launch need not bring it to the device.
        check("cuGraphUpload", unsafe { sys::cuGraphUpload(graph.handle, stream.raw.handle) })?;
        stream.wait()?;
        Ok(graph)
    }

    /// Launches it, after the stream's earlier work and after its own earlier launches.
    ///
    /// # Errors
    /// A fault of the device.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        self.device.own("a stream", stream.device())?;
        self.device.bind()?;
        let mut launched = self.launched.borrow_mut();
        if !launched.iter().any(|known| Arc::ptr_eq(known, &stream.raw)) {
            launched.push(stream.raw.clone());
        }
        // SAFETY: the graph and the stream are of this context; what the graph names is held.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.handle, stream.raw.handle) })
    }

    /// What it consists of.
    #[must_use]
    pub fn counts(&self) -> NodeCounts {
        self.counts
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graph").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        for stream in self.launched.take() {
            self.device.note("a graph's work", stream.drain());
        }
        // SAFETY: the handle is this graph's, and no launch of it is under way.
        let ended =
            self.device.bind().and_then(|()| check("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(self.handle) }));
        self.device.note("a graph", ended);
    }
}
