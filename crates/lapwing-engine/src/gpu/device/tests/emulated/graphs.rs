//! Graphs: captured, launched a thousand times, sent to another thread, discarded.

use std::sync::Arc;
use std::time::Duration;

use super::super::super::{Capture, CudaDevice, CudaGraph, DeviceBuffer, Direction, Event, NodeCounts, PinnedBuffer, Stream};
use super::{Copy, PATIENCE, SHAPE, kernel, numbers, open};
use lapwing_testing::{alone, alone_with, fakes, test_name};

/// One request's graph: two events around a copy in, a kernel that sets the flag, and a copy out.
struct Request {
    stream: Stream,
    graph: CudaGraph,
    input: PinnedBuffer,
    output: PinnedBuffer,
    control: PinnedBuffer,
    events: [Event; 2],
}

fn request(device: &Arc<CudaDevice>) -> Request {
    let mut stream = Stream::new(device).unwrap();
    let kernel = kernel(device);
    let (x, y, counter) =
        (DeviceBuffer::new(device, 64).unwrap(), DeviceBuffer::new(device, 64).unwrap(), DeviceBuffer::new(device, 4).unwrap());
    counter.upload(&stream, 0, &[0; 4]).unwrap();
    let input = PinnedBuffer::new(device, 64, Direction::ToDevice).unwrap();
    let output = PinnedBuffer::new(device, 64, Direction::ToHost).unwrap();
    let control = PinnedBuffer::new(device, 8, Direction::ToHost).unwrap();
    let events = [Event::timed(device).unwrap(), Event::timed(device).unwrap()];
    let capture = Capture::begin(&mut stream).unwrap();
    capture.record(&events[0]).unwrap();
    capture.copy_in(&input, 0, &x, 0, 64).unwrap();
    capture.fill(&y, 0, 64, 0).unwrap();
    let plain = Copy::row(x.address(), y.address(), 16);
    // SAFETY: rows of 16 floats, which the graph keeps alive through its copies.
    unsafe { capture.launch(&kernel, SHAPE, plain.bytes()) }.unwrap();
    capture.copy_out(&y, 0, &output, 0, 64).unwrap();
    capture.record(&events[1]).unwrap();
    let last = Copy { flag: control.mapped() + 4, counter: counter.address(), ..plain };
    // SAFETY: as above; the counter is kept below, the control memory by the caller that launches.
    unsafe { capture.launch(&kernel, SHAPE, last.bytes()) }.unwrap();
    capture.keep_with_graph(Arc::new(counter));
    let graph = capture.end().unwrap();
    Request { stream, graph, input, output, control, events }
}

#[test]
fn a_graph_does_a_thousand_requests() {
    alone(test_name!(), || {
        let device = open();
        {
            let mut request = request(&device);
            let counts = NodeCounts { kernels: 2, copies: 2, fills: 1, events: 2, others: 0 };
            assert_eq!(request.graph.counts(), counts);
            assert_eq!(counts.total(), 7);
            for i in 0..1000 {
                let input = numbers(i as f32);
                request.input.write(0, &input).unwrap();
                request.control.set_flag(1, 0).unwrap();
                request.graph.launch(&request.stream).unwrap();
                assert_eq!(request.stream.wait_flag(&request.control, 1, &PATIENCE).unwrap(), 1);
                let mut output = vec![0; 64];
                request.output.read(0, &mut output).unwrap();
                assert_eq!(output, input, "request {i}");
            }
            // the flag may be set before the stream has finished its last node
            request.stream.wait().unwrap();
            assert!(request.events[1].since(&request.events[0]).unwrap() > Duration::ZERO);
            assert_eq!(request.events[0].since(&request.events[1]).unwrap(), Duration::ZERO);
            assert!(request.stream.poll().unwrap());
        }
        device.check().unwrap();
        let memory = device.memory().unwrap();
        assert_eq!((memory.device_bytes, memory.pinned_bytes), (0, 0));
    });
}

#[test]
fn a_graph_may_go_to_another_thread_and_outlive_its_stream() {
    alone(test_name!(), || {
        let device = open();
        let Request { stream, graph, mut input, output, control, events } = request(&device);
        drop(stream);
        let other = device.clone();
        let done = std::thread::spawn(move || {
            let stream = Stream::new(&other).unwrap();
            input.write(0, &numbers(3.0)).unwrap();
            graph.launch(&stream).unwrap();
            drop(events);
            // waits for the launch
            drop(graph);
            let mut back = vec![0; 64];
            output.read(0, &mut back).unwrap();
            (back, control.flag(1).unwrap())
        });
        assert_eq!(done.join().unwrap(), (numbers(3.0), 1));
        device.check().unwrap();
    });
}

#[test]
fn a_capture_can_be_given_up() {
    alone(test_name!(), || {
        let device = open();
        let mut stream = Stream::new(&device).unwrap();
        let block = DeviceBuffer::new(&device, 64).unwrap();
        block.upload(&stream, 0, &[1; 64]).unwrap();
        let capture = Capture::begin(&mut stream).unwrap();
        capture.fill(&block, 0, 64, 2).unwrap();
        drop(capture);
        // recorded work was not executed, and the stream is usable
        let mut back = [0; 64];
        block.download(&stream, 0, &mut back).unwrap();
        assert_eq!(back, [1; 64]);
        let graph = Capture::begin(&mut stream).unwrap().end().unwrap();
        assert_eq!(graph.counts(), NodeCounts::default());
        graph.launch(&stream).unwrap();
        stream.wait().unwrap();
        device.check().unwrap();
    });
}

#[test]
fn a_request_is_one_launch_and_allocates_nothing() {
    let trace = fakes::scratch("requests").join("trace");
    let _ = std::fs::remove_file(&trace);
    alone_with(test_name!(), &[("LAPWING_FAKE_TRACE", trace.to_str().unwrap())], || {
        let mut request = request(&open());
        for _ in 0..10 {
            request.input.write(0, &numbers(1.0)).unwrap();
            request.control.set_flag(1, 0).unwrap();
            request.graph.launch(&request.stream).unwrap();
            request.stream.wait_flag(&request.control, 1, &PATIENCE).unwrap();
        }
    });
    let trace = std::fs::read_to_string(&trace).unwrap();
    let lines: Vec<_> = trace.lines().collect();
    let first = lines.iter().position(|line| line.starts_with("graph launch")).unwrap();
    assert_eq!(&lines[first..first + 10], ["graph launch nodes 7"; 10], "{trace}");
    // afterwards only frees
    assert!(!lines[first + 10..].iter().any(|line| line.starts_with("graph launch") || line.starts_with("alloc")), "{trace}");
    assert!(!trace.contains("leak"), "{trace}");
}

#[test]
fn waiting_while_capturing_spoils_the_capture() {
    alone(test_name!(), || {
        let device = open();
        let mut stream = Stream::new(&device).unwrap();
        let block = DeviceBuffer::new(&device, 64).unwrap();
        let other = Stream::new(&device).unwrap();
        let capture = Capture::begin(&mut stream).unwrap();
        capture.fill(&block, 0, 64, 2).unwrap();
        assert!(other.wait().is_err());
        let error = capture.end().unwrap_err();
        assert!(error.to_string().contains("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"), "{error}");
        assert!(!error.is_fatal());
        // no other effect
        stream.wait().unwrap();
        device.check().unwrap();
    });
}

#[test]
fn threads_with_streams_of_their_own_do_not_disturb_one_another() {
    alone(test_name!(), || {
        let device = open();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let device = device.clone();
                scope.spawn(move || {
                    let mut request = request(&device);
                    for i in 0..100 {
                        let input = numbers((thread * 1000 + i) as f32);
                        request.input.write(0, &input).unwrap();
                        request.control.set_flag(1, 0).unwrap();
                        request.graph.launch(&request.stream).unwrap();
                        request.stream.wait_flag(&request.control, 1, &PATIENCE).unwrap();
                        let mut output = vec![0; 64];
                        request.output.read(0, &mut output).unwrap();
                        assert_eq!(output, input);
                    }
                });
            }
        });
        assert_eq!(device.memory().unwrap().device_bytes, 0);
        device.check().unwrap();
    });
}

#[test]
fn a_graph_waits_for_its_work_before_it_goes() {
    alone(test_name!(), || {
        let device = open();
        let mut stream = Stream::new(&device).unwrap();
        let block = DeviceBuffer::new(&device, 64).unwrap();
        let output = PinnedBuffer::new(&device, 64, Direction::ToHost).unwrap();
        let capture = Capture::begin(&mut stream).unwrap();
        capture.fill(&block, 0, 64, 9).unwrap();
        capture.copy_out(&block, 0, &output, 0, 64).unwrap();
        let graph = capture.end().unwrap();
        graph.launch(&stream).unwrap();
        drop(graph);
        // nothing was freed yet, so nothing else waited
        let mut back = [0; 64];
        output.read(0, &mut back).unwrap();
        assert_eq!(back, [9; 64]);
    });
}
