//! Modules and kernels: loaded once; launches that do not fit are rejected with a message.

use std::sync::Arc;

use super::super::super::{DeviceBuffer, DeviceError, LaunchShape, Modules, Stream};
use super::{Copy, PTX, SHAPE, kernel, open};
use lapwing_testing::{alone, test_name};

#[test]
fn modules_and_kernels_are_loaded_once() {
    alone(test_name!(), || {
        let device = open();
        let modules = Modules::new(&device);
        let module = modules.load("copy", PTX).unwrap();
        assert!(Arc::ptr_eq(&module, &modules.load("copy", "never looked at").unwrap()));
        let kernel = module.function("copy_columns").unwrap();
        assert!(Arc::ptr_eq(&kernel, &module.function("copy_columns").unwrap()));
        let error = module.function("nothing").unwrap_err();
        assert_eq!(error.to_string(), "module copy has no kernel nothing");
        let DeviceError::Module { file, .. } = modules.load("bad", "this is no PTX").unwrap_err() else {
            panic!("another error")
        };
        assert_eq!(file, "bad");
        let zero = modules.load("bad", "a\0b").unwrap_err();
        assert!(zero.to_string().ends_with("the text has a zero in it"), "{zero}");
    });
}

#[test]
fn a_device_has_a_module_once_for_all_and_as_long_as_it_is_used() {
    alone(test_name!(), || {
        let device = open();
        let [one, other] = [(); 2].map(|()| Modules::new(&device));
        let module = one.load("copy", PTX).unwrap();
        assert!(Arc::ptr_eq(&module, &other.load("copy", "never looked at").unwrap()));
        drop((one, module));
        assert!(Modules::new(&device).load("copy", "never looked at").is_ok());
        drop(other);
        let error = Modules::new(&device).load("copy", "this is no PTX").unwrap_err();
        assert!(matches!(error, DeviceError::Module { .. }), "{error}");
        // the context ends: modules hold a reference to their device, but it holds none to them
        let held = Arc::downgrade(&device);
        drop(device);
        assert!(held.upgrade().is_none());
    });
}

#[test]
fn a_launch_that_does_not_fit_is_refused() {
    alone(test_name!(), || {
        let device = open();
        let stream = Stream::new(&device).unwrap();
        let kernel = kernel(&device);
        let block = DeviceBuffer::new(&device, 64).unwrap();
        let args = Copy::row(block.address(), block.address(), 16);
        // SAFETY: rejected, or copies a row onto itself.
        let launch = |shape, args: &[u8]| unsafe { stream.launch(&kernel, shape, args) };
        let most = device.info().shared_bytes;
        for shape in [
            LaunchShape { grid: (0, 1), ..SHAPE },
            LaunchShape { grid: (1, 0), ..SHAPE },
            LaunchShape { grid: (1, 65_536), ..SHAPE },
            LaunchShape { threads: 0, ..SHAPE },
            LaunchShape { threads: 4096, ..SHAPE },
            LaunchShape { shared_bytes: most + 1, ..SHAPE },
        ] {
            assert!(matches!(launch(shape, args.bytes()), Err(DeviceError::Launch { .. })), "{shape:?}");
        }
        let twice = [args, args];
        // SAFETY: a struct of integers without padding, twice; at an offset of four bytes it is not aligned.
        let askew = unsafe { std::slice::from_raw_parts(twice.as_ptr().cast::<u8>().add(4), size_of::<Copy>()) };
        assert!(matches!(launch(SHAPE, askew), Err(DeviceError::Launch { .. })));
        if kernel.info().argument_bytes.is_some() {
            let error = launch(SHAPE, &args.bytes()[8..]).unwrap_err().to_string();
            assert!(error.ends_with(&format!("it takes {}", size_of::<Copy>())), "{error}");
        }
        // more than the default limit
        launch(LaunchShape { shared_bytes: most, ..SHAPE }, args.bytes()).unwrap();
        stream.wait().unwrap();
    });
}
