//! No driver, and unusable drivers: each gives an error message and never a panic.

use std::path::Path;

use super::super::symbols::{FIRST, NEEDED};
use super::super::{CudaDevice, DeviceError, Driver};
use super::super::{Modules, Version};
use lapwing_testing::{alone, alone_with, fakes, not_run, test_name};

/// The error of looking for the driver in the directory.
fn refusal(directory: Option<&Path>) -> String {
    Driver::find(directory).unwrap_err().to_string()
}

#[test]
fn no_driver() {
    alone(test_name!(), || {
        let system = ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/local/nvidia/lib64"];
        if system.iter().any(|folder| Path::new(folder).join("libcuda.so.1").exists()) {
            return not_run("this machine has a driver");
        }
        assert_eq!(refusal(None), "no driver: libcuda.so.1 was not found");
        // a directory that does not exist, and one without a driver
        assert_eq!(refusal(Some(Path::new("/nowhere"))), "no driver: libcuda.so.1 was not found");
        assert_eq!(refusal(Some(Path::new("/"))), "no driver: libcuda.so.1 was not found");
    });
}

#[test]
fn a_file_that_is_no_library() {
    alone(test_name!(), || {
        let folder = std::env::temp_dir().join(format!("lapwing-no-library-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libcuda.so.1"), "nothing").unwrap();
        let message = refusal(Some(&folder));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(message.contains("libcuda.so.1 cannot be loaded: ") && message.contains("file too short"), "{message}");
    });
}

#[test]
fn a_driver_that_does_not_start() {
    alone(test_name!(), || {
        let message = refusal(Some(&fakes::driver("stub-mismatch")));
        assert_eq!(message, "driver: cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)");
    });
}

#[test]
fn a_driver_without_devices() {
    alone(test_name!(), || assert_eq!(refusal(Some(&fakes::driver("stub-no-device"))), "no device"));
}

/// Function bodies for a fake driver with one device and its properties.
const DEVICE: [(&str, &str); 6] = [
    ("cuDriverGetVersion", "(int *version) { return *version = 12080, 0; }"),
    ("cuDeviceGetCount", "(int *count) { return *count = 1, 0; }"),
    ("cuDeviceGetName", "(char *name) { return name[0] = 'x', name[1] = 0, 0; }"),
    ("cuDeviceGetAttribute", "(int *value) { return *value = 9, 0; }"),
    ("cuDevicePrimaryCtxRetain", "(void **context) { return *context = context, 0; }"),
    ("cuCtxGetCurrent", "(void **context) { return *context = 0, 0; }"),
];

#[test]
fn a_driver_that_counts_no_device() {
    alone(test_name!(), || {
        let none = [DEVICE[0], ("cuDeviceGetCount", "(int *count) { return *count = 0, 0; }")];
        assert_eq!(refusal(Some(&fakes::made("counts-none", FIRST, &none))), "no device");
    });
}

#[test]
fn a_driver_that_is_too_old() {
    alone(test_name!(), || {
        let message = refusal(Some(&fakes::driver("stub-old-version")));
        assert_eq!(message, "driver 11.0 is too old: 12.0 or newer is needed");
    });
}

#[test]
fn a_driver_that_lacks_a_function() {
    alone(test_name!(), || {
        assert_eq!(refusal(Some(&fakes::made("lacks", &FIRST[..2], &DEVICE))), "libcuda.so.1 has no cuDeviceGetCount");
    });
}

#[test]
fn a_driver_that_lacks_a_function_which_is_needed_later() {
    alone(test_name!(), || {
        let all: Vec<_> = FIRST.iter().chain(NEEDED).copied().filter(|name| *name != "cuGraphUpload").collect();
        assert_eq!(refusal(Some(&fakes::made("lacks-later", &all, &DEVICE))), "libcuda.so.1 has no cuGraphUpload");
    });
}

#[test]
fn a_driver_that_tells_no_times() {
    alone(test_name!(), || {
        let all: Vec<_> = FIRST.iter().chain(NEEDED).copied().collect();
        assert_eq!(refusal(Some(&fakes::made("no-times", &all, &DEVICE))), "libcuda.so.1 has no cuEventElapsedTime");
    });
}

#[test]
fn what_the_drivers_compiler_says_is_told() {
    alone(test_name!(), || {
        let all: Vec<_> = FIRST.iter().chain(NEEDED).copied().chain(["cuEventElapsedTime"]).collect();
        let load = "(void **module, const void *image, unsigned count, int *options, void **values) {
            for (unsigned i = 0; i < count; ++i) {
                if (options[i] == 5) strcpy(values[i], \"ptxas fatal: line 7\\n\");
                if (options[i] == 6 && (long)values[i] < 1024) return 1;
            }
            return 218;
        }";
        let bodies: Vec<_> = DEVICE.into_iter().chain([("cuModuleLoadDataEx", load)]).collect();
        let found = Driver::find(Some(&fakes::made("says", &all, &bodies))).unwrap();
        assert_eq!(found.driver, Version(12, 8));
        let device = CudaDevice::open(&found, 0).unwrap();
        assert!(!device.is_emulated());
        let message = Modules::new(&device).load("gemm", ".version 99").unwrap_err().to_string();
        assert_eq!(message, "module gemm: CUDA_ERROR_INVALID_PTX (218): ptxas fatal: line 7");
    });
}

#[test]
fn a_device_that_is_too_old() {
    alone_with(test_name!(), &[("LAPWING_FAKE_CAPABILITY", "7.5")], || {
        let found = Driver::find(Some(&fakes::driver("."))).unwrap();
        let error = CudaDevice::open(&found, 0).unwrap_err();
        assert_eq!(error.to_string(), "compute capability 7.5: 8.0 or newer is needed");
        assert_eq!(CudaDevice::open(&found, 3).unwrap_err().to_string(), "device 3: there is 1");
        assert!(!error.is_fatal());
    });
}

#[test]
fn another_driver_than_the_one_in_use() {
    alone(test_name!(), || {
        let (first, second) = (fakes::driver("."), fakes::driver("old"));
        Driver::find(Some(&first)).unwrap();
        // once more, and by the name under which it is open
        Driver::find(Some(&first)).unwrap();
        assert_eq!(Driver::find(None).unwrap().file, None);
        let path = second.join("libcuda.so.1");
        assert_eq!(Driver::find(Some(&second)).unwrap_err(), DeviceError::DuplicateLibrary { path, library: "libcuda.so.1" });
    });
}
