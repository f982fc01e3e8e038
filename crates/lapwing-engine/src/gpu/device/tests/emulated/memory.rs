//! Memory: counted, freed, copied to and from, and kept alive as long as work uses it.

use super::super::super::{CudaDevice, DeviceBuffer, DeviceError, Direction, Driver, PinnedBuffer, Stream, Version};
use super::open;
use lapwing_testing::{alone, fakes, test_name};

#[test]
fn a_device_is_found_and_described() {
    alone(test_name!(), || {
        let found = Driver::find(Some(&fakes::driver("."))).unwrap();
        assert!(found.driver >= Version(12, 8), "{}", found.driver);
        assert!(found.file.is_some());
        let count = found.devices.len();
        assert_eq!(CudaDevice::open(&found, 3).unwrap_err(), DeviceError::NoSuchDevice { asked: 3, count });
        let device = CudaDevice::open(&found, 0).unwrap();
        assert!(device.is_emulated());
        assert_eq!(device.info().name, "lapwing-emulated");
        assert!(device.info().capability >= (8, 0));
        assert!(device.info().multiprocessors > 0 && device.info().l2_bytes > 0 && device.info().memory_bytes > 0);
        assert!(device.info().shared_bytes >= 48 << 10);
        device.check().unwrap();
    });
}

#[test]
fn memory_is_counted_and_given_back() {
    alone(test_name!(), || {
        let device = open();
        let before = device.memory().unwrap();
        assert_eq!((before.device_bytes, before.pinned_bytes), (0, 0));
        {
            let block = DeviceBuffer::new(&device, 1000).unwrap();
            assert_eq!(block.address() % 256, 0);
            let _pinned = PinnedBuffer::new(&device, 64, Direction::ToDevice).unwrap();
            let during = device.memory().unwrap();
            assert_eq!((during.device_bytes, during.pinned_bytes), (1000, 64));
            assert!(during.free_bytes <= before.free_bytes - 1000);
        }
        let after = device.memory().unwrap();
        assert_eq!((after.device_bytes, after.device_most_bytes), (0, 1000));
        assert_eq!((after.pinned_bytes, after.pinned_most_bytes), (0, 64));
        assert_eq!(after.free_bytes, before.free_bytes);
        assert!(matches!(DeviceBuffer::new(&device, 0), Err(DeviceError::Range { .. })));
        assert!(DeviceBuffer::new(&device, 1 << 50).unwrap_err().is_out_of_memory());
        // not a device failure
        device.check().unwrap();
    });
}

#[test]
fn copies_go_where_they_should_and_nowhere_else() {
    alone(test_name!(), || {
        let device = open();
        let stream = Stream::new(&device).unwrap();
        let block = DeviceBuffer::new(&device, 256).unwrap();
        block.upload(&stream, 0, &[7; 256]).unwrap();
        block.upload(&stream, 100, &[1, 2, 3]).unwrap();
        let mut back = [0; 5];
        block.download(&stream, 99, &mut back).unwrap();
        assert_eq!(back, [7, 1, 2, 3, 7]);
        for (offset, bytes) in [(254, 3), (257, 1), (usize::MAX, 2), (0, 0)] {
            let error = block.upload(&stream, offset, &vec![0; bytes]).unwrap_err();
            assert_eq!(error, DeviceError::Range { what: "upload", offset, bytes, size: 256 });
        }
        let mut input = PinnedBuffer::new(&device, 64, Direction::ToDevice).unwrap();
        let output = PinnedBuffer::new(&device, 64, Direction::ToHost).unwrap();
        input.write(8, &[9, 8]).unwrap();
        stream.fill(&block, 0, 256, 5).unwrap();
        stream.copy_in(&input, 8, &block, 200, 2).unwrap();
        stream.copy(&block, 199, &block, 0, 4).unwrap();
        stream.copy_out(&block, 0, &output, 60, 4).unwrap();
        stream.wait().unwrap();
        let mut back = [0; 8];
        output.read(56, &mut back).unwrap();
        assert_eq!(back, [0, 0, 0, 0, 5, 9, 8, 5]);
        assert_eq!(input.read(0, &mut back), Err(DeviceError::WriteOnly));
        assert_eq!(stream.copy_out(&block, 0, &input, 0, 4), Err(DeviceError::WriteOnly));
        assert!(matches!(stream.copy_in(&input, 61, &block, 0, 4), Err(DeviceError::Range { .. })));
        assert!(matches!(stream.copy_in(&input, 0, &block, 253, 4), Err(DeviceError::Range { .. })));
        assert!(matches!(output.flag(16), Err(DeviceError::Range { .. })));
    });
}

#[test]
fn memory_outlives_the_work_that_names_it() {
    alone(test_name!(), || {
        let device = open();
        let stream = Stream::new(&device).unwrap();
        let block = DeviceBuffer::new(&device, 64).unwrap();
        stream.fill(&block, 0, 64, 1).unwrap();
        drop(block);
        assert_eq!(device.memory().unwrap().device_bytes, 64);
        stream.wait().unwrap();
        assert_eq!(device.memory().unwrap().device_bytes, 0);
    });
}
