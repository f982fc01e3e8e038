//! CUDA graphs: a request's whole device work, captured once and launched as a unit.

use std::cell::RefCell;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeType};

use super::context::CudaDevice;
use super::error::{Result, check};
use super::stream::{KeptResource, RawStream, Stream};

/// Number of nodes of each kind in a graph.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Kernels.
    pub kernels: usize,
    /// Copies.
    pub copies: usize,
    /// Memory fills.
    pub fills: usize,
    /// Event records.
    pub events: usize,
    /// All others: host functions, waits, allocations. This layer creates none.
    pub others: usize,
}

impl NodeCounts {
    /// All nodes.
    #[must_use]
    pub fn total(&self) -> usize {
        self.kernels + self.copies + self.fills + self.events + self.others
    }
}

/// A captured graph before it is instantiated.
pub(crate) struct CapturedGraph {
    device: Arc<CudaDevice>,
    handle: CUgraph,
}

impl CapturedGraph {
    /// Takes ownership of a graph handle of the driver; `None` if it is null.
    pub(crate) fn from_handle(device: &Arc<CudaDevice>, handle: CUgraph) -> Option<Self> {
        (!handle.is_null()).then(|| Self { device: device.clone(), handle })
    }

    fn count(&self) -> Result<NodeCounts> {
        let mut length = 0_usize;
        // SAFETY: with a null node array only the count is written.
        check("cuGraphGetNodes", unsafe { sys::cuGraphGetNodes(self.handle, std::ptr::null_mut(), &mut length) })?;
        let mut nodes: Vec<CUgraphNode> = vec![std::ptr::null_mut(); length];
        if length > 0 {
            // SAFETY: `nodes` has room for `length` nodes.
            check("cuGraphGetNodes", unsafe { sys::cuGraphGetNodes(self.handle, nodes.as_mut_ptr(), &mut length) })?;
        }
        nodes.truncate(length);
        let mut counts = NodeCounts::default();
        for node in nodes {
            let mut kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
            // SAFETY: a node of this graph; `kind` is valid for writing.
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

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        // SAFETY: this owns the handle; graphs instantiated from it do not need it.
        let ended = self.device.bind().and_then(|()| check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(self.handle) }));
        self.device.record_drop_error("a captured graph", ended);
    }
}

/// An instantiated graph, which can be launched repeatedly. It keeps the memory, kernels and events that it uses alive.
///
/// One thread at a time may use it: the driver's graphs are not thread-safe.
pub struct CudaGraph {
    device: Arc<CudaDevice>,
    handle: CUgraphExec,
    counts: NodeCounts,
    /// The streams on which it was launched; dropping the graph waits for them. The `RefCell` also makes the graph
    /// `!Sync`.
    launched: RefCell<Vec<Arc<RawStream>>>,
    /// Released after the launched work is done, because drop waits first.
    _kept: Vec<KeptResource>,
}

// SAFETY: the driver allows any thread to use a graph's handle, as long as no two do at once, which `!Sync` ensures. No
// part of it is thread-local: every call makes the context current.
unsafe impl Send for CudaGraph {}

impl CudaGraph {
    pub(crate) fn new(stream: &Stream, template: &CapturedGraph) -> Result<Self> {
        let device = stream.device().clone();
        let kept = stream.take_kept();
        let counts = template.count()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a graph of the current context (the end of the capture made it current); `handle` is valid for
        // writing.
        check("cuGraphInstantiate", unsafe { sys::cuGraphInstantiateWithFlags(&mut handle, template.handle, 0) })?;
        let graph = Self { device, handle, counts, launched: RefCell::default(), _kept: kept };
        graph.launched.borrow_mut().push(stream.raw.clone());
        // SAFETY: the graph and the stream belong to this context. The upload keeps its cost out of the first launch.
        check("cuGraphUpload", unsafe { sys::cuGraphUpload(graph.handle, stream.raw.handle) })?;
        stream.wait()?;
        Ok(graph)
    }

    /// Launches the graph after the stream's earlier work and after its own earlier launches.
    ///
    /// # Errors
    /// The device failed.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        self.device.check_owner("a stream", stream.device())?;
        self.device.bind()?;
        let mut launched = self.launched.borrow_mut();
        if !launched.iter().any(|known| Arc::ptr_eq(known, &stream.raw)) {
            launched.push(stream.raw.clone());
        }
        // SAFETY: the graph and the stream belong to this context; everything that the graph uses is kept alive.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.handle, stream.raw.handle) })
    }

    /// Its nodes.
    #[must_use]
    pub fn counts(&self) -> NodeCounts {
        self.counts
    }
}

impl std::fmt::Debug for CudaGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaGraph").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        for stream in self.launched.take() {
            self.device.record_drop_error("a graph's work", stream.drain());
        }
        // SAFETY: this owns the handle, and no launch of it is running.
        let ended =
            self.device.bind().and_then(|()| check("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(self.handle) }));
        self.device.record_drop_error("a graph", ended);
    }
}
