//! Timing of device work.

use std::cell::Cell;
use std::time::Duration;

use super::super::super::{DeviceBuffer, DeviceError, Stream};
use super::{Copy, SHAPE, kernel, open};
use lapwing_testing::{alone, test_name};

#[test]
fn short_work_is_timed_many_at_once_and_what_fails_leaves_the_stream_as_it_was() {
    alone(test_name!(), || {
        let device = open();
        let mut stream = Stream::new(&device).unwrap();
        let (kernel, block) = (kernel(&device), DeviceBuffer::new(&device, 64).unwrap());
        let args = Copy::row(block.address(), block.address(), 16);
        let given = Cell::new(0);
        let refused = DeviceError::NoFlag;
        let time = |stream: &mut Stream, last: usize| {
            given.set(0);
            stream.time(|stream| {
                given.set(given.get() + 1);
                if given.get() > last {
                    return Err(refused.clone());
                }
                // SAFETY: copies a row onto itself.
                unsafe { stream.launch(&kernel, SHAPE, args.bytes()) }
            })
        };
        let took = time(&mut stream, usize::MAX).unwrap();
        assert!(took > Duration::ZERO && took < Duration::from_secs(1), "{took:?}");
        // two warm-up runs, and at least one in a graph
        assert!((3..=18).contains(&given.get()), "{given:?}");
        // in the first run, where it is timed alone, and in the capture
        for last in 0..3 {
            assert_eq!(time(&mut stream, last), Err(refused.clone()));
            assert_eq!(given.get(), last + 1);
            stream.wait().unwrap();
        }
        assert!(time(&mut stream, usize::MAX).is_ok());
        device.check().unwrap();
    });
}
