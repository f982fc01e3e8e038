//! Waiting: for flags, for events, and for flags that are never set.

use std::time::Duration;

use super::super::super::{
    CudaDevice, DeviceBuffer, DeviceError, Direction, Driver, Event, PinnedBuffer, Stream, Version, WaitPolicy,
};
use super::{Copy, PATIENCE, SHAPE, kernel, open};
use lapwing_testing::{alone, alone_with, fakes, test_name};

#[test]
fn a_flag_that_nobody_sets_ends_the_wait() {
    alone(test_name!(), || {
        let device = open();
        let stream = Stream::new(&device).unwrap();
        let block = DeviceBuffer::new(&device, 64).unwrap();
        let control = PinnedBuffer::new(&device, 4, Direction::ToHost).unwrap();
        stream.fill(&block, 0, 64, 1).unwrap();
        assert_eq!(stream.wait_flag(&control, 0, &PATIENCE), Err(DeviceError::NoFlag));
        assert!(matches!(stream.wait_flag(&control, 1, &PATIENCE), Err(DeviceError::Range { .. })));
    });
}

#[test]
fn a_fault_is_told_by_every_way_to_wait() {
    alone_with(test_name!(), &[("LAPWING_FAKE_FAULT", "launch:1")], || {
        let device = open();
        let stream = Stream::new(&device).unwrap();
        let control = PinnedBuffer::new(&device, 4, Direction::ToHost).unwrap();
        let block = DeviceBuffer::new(&device, 64).unwrap();
        let args = Copy::row(block.address(), block.address(), 16);
        // SAFETY: copies a row onto itself, except for the fault.
        unsafe { stream.launch(&kernel(&device), SHAPE, args.bytes()) }.unwrap();
        let error = stream.wait_flag(&control, 0, &PATIENCE).unwrap_err();
        assert!(error.is_fatal(), "{error}");
        assert!(error.to_string().starts_with("driver: cuStreamQuery failed: CUDA_ERROR_"), "{error}");
        assert!(stream.wait().unwrap_err().is_fatal());
        assert!(stream.poll().unwrap_err().is_fatal());
        assert!(device.check().unwrap_err().is_fatal());
    });
}

#[test]
fn events_tell_times_on_drivers_before_12_8() {
    alone_with(test_name!(), &[("LAPWING_FAKE_DRIVER_VERSION", "12000")], || {
        let device = CudaDevice::open(&Driver::find(Some(&fakes::driver("old"))).unwrap(), 0).unwrap();
        assert_eq!(device.driver(), Version(12, 0));
        let stream = Stream::new(&device).unwrap();
        let (start, end) = (Event::timed(&device).unwrap(), Event::timed(&device).unwrap());
        assert!(end.since(&start).is_err());
        stream.record(&start).unwrap();
        stream.record(&end).unwrap();
        end.wait().unwrap();
        assert!(end.poll().unwrap());
        assert!(end.since(&start).unwrap() > Duration::ZERO);
    });
}

#[test]
fn a_wait_for_a_flag_has_an_end() {
    alone_with(test_name!(), &[("LAPWING_FAKE_QUERIES", "1000000")], || {
        let device = open();
        let stream = Stream::new(&device).unwrap();
        let block = DeviceBuffer::new(&device, 64).unwrap();
        let control = PinnedBuffer::new(&device, 4, Direction::ToHost).unwrap();
        stream.fill(&block, 0, 64, 1).unwrap();
        assert!(!stream.poll().unwrap());
        let policy = WaitPolicy { limit: Duration::from_millis(20), ..PATIENCE };
        let DeviceError::TimedOut { after } = stream.wait_flag(&control, 0, &policy).unwrap_err() else {
            panic!("another error")
        };
        assert!(after > Duration::from_millis(20) && after < Duration::from_secs(5), "{after:?}");
    });
}

#[test]
fn what_goes_wrong_in_a_drop_is_told_once() {
    alone_with(test_name!(), &[("LAPWING_FAKE_FAULT", "sync:1")], || {
        let device = open();
        // the first wait is the one in drop
        drop(Stream::new(&device).unwrap());
        let error = device.check().unwrap_err();
        assert!(matches!(&error, DeviceError::Call { call: "cuStreamSynchronize", code: 719, .. }), "{error}");
        // no longer by the drop, but the context is lost
        assert!(matches!(device.check(), Err(DeviceError::Call { call: "cuStreamQuery", .. })));
    });
}
