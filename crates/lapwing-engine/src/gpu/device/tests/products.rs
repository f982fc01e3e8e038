//! cublasLt: absent, rejected, and, with a fake library that multiplies on the host, each precision and epilogue.

use std::sync::Arc;

use super::super::{
    Capture, CublasLt, CudaDevice, DeviceBuffer, DeviceError, Driver, MatmulOperands, MatmulPrecision, MatmulShape, Stream,
    Version,
};
use lapwing_testing::{alone, alone_with, fakes, test_name};

const ROWS: usize = 3;
const N: usize = 5;
const K: usize = 7;

/// A shape with strides that are wider than its matrices.
fn product(precision: MatmulPrecision) -> MatmulShape {
    let (rows, n, k) = (ROWS as u32, N as u32, K as u32);
    MatmulShape {
        precision,
        rows,
        n,
        k,
        x_stride: 8,
        w_stride: 32,
        y_stride: 16,
        residual_stride: None,
        bias: false,
        relu: false,
    }
}

fn open() -> (Arc<CudaDevice>, CublasLt, Stream) {
    let found = Driver::find(Some(&fakes::driver("."))).unwrap();
    let device = CudaDevice::open(&found, 0).unwrap();
    let lt = CublasLt::find(&found, &device).unwrap();
    let stream = Stream::new(&device).unwrap();
    (device, lt, stream)
}

/// An element of a matrix: eighths from -2 to 2, so that sums of products are exact in fp32.
fn number(seed: usize, row: usize, column: usize) -> f32 {
    ((seed * 31 + row * 17 + column * 13) % 33) as f32 / 8.0 - 2.0
}

/// The bits of a float that fp16 represents exactly.
fn half(number: f32) -> u16 {
    let bits = number.to_bits();
    if number == 0.0 {
        return 0;
    }
    let exponent = ((bits >> 23 & 0xff) as i32 - 112) as u16;
    ((bits >> 16 & 0x8000) as u16) | exponent << 10 | (bits >> 13 & 0x3ff) as u16
}

fn whole(half: u16) -> f32 {
    if half & 0x7fff == 0 {
        return 0.0;
    }
    f32::from_bits(u32::from(half & 0x8000) << 16 | ((u32::from(half & 0x7fff) << 13) + (112 << 23)))
}

/// A matrix on the device, with NaN between its rows.
fn matrix(stream: &Stream, product: &MatmulShape, seed: usize, rows: usize, width: usize, stride: u32) -> DeviceBuffer {
    let mut bytes = Vec::new();
    for row in 0..rows {
        for column in 0..stride as usize {
            let value = if column < width { number(seed, row, column) } else { f32::NAN };
            match product.precision {
                MatmulPrecision::Fp16 if value.is_nan() => bytes.extend(0x7fff_u16.to_le_bytes()),
                MatmulPrecision::Fp16 => bytes.extend(half(value).to_le_bytes()),
                _ => bytes.extend(value.to_le_bytes()),
            }
        }
    }
    let block = DeviceBuffer::new(stream.device(), bytes.len()).unwrap();
    block.upload(stream, 0, &bytes).unwrap();
    block
}

struct Case {
    product: MatmulShape,
    blocks: Vec<DeviceBuffer>,
    operands: MatmulOperands,
}

impl Case {
    fn new(stream: &Stream, product: MatmulShape) -> Self {
        let (rows, n, k) = (product.rows as usize, product.n as usize, product.k as usize);
        let mut blocks = vec![
            matrix(stream, &product, 1, rows, k, product.x_stride),
            matrix(stream, &product, 2, n, k, product.w_stride),
            matrix(stream, &product, 3, 1, n, product.n),
            matrix(stream, &product, 5, rows, n, product.y_stride),
        ];
        let residual = product.residual_stride.map(|stride| matrix(stream, &product, 4, rows, n, stride));
        let operands = MatmulOperands {
            x: blocks[0].address(),
            w: blocks[1].address(),
            bias: product.bias.then(|| blocks[2].address()),
            residual: residual.as_ref().map(DeviceBuffer::address),
            y: blocks[3].address(),
        };
        blocks.extend(residual);
        Self { product, blocks, operands }
    }

    /// The result: rows of `y_stride`.
    fn result(&self, stream: &Stream) -> Vec<f32> {
        let mut bytes = vec![0; self.blocks[3].bytes()];
        self.blocks[3].download(stream, 0, &mut bytes).unwrap();
        match self.product.precision {
            MatmulPrecision::Fp16 => bytes.chunks(2).map(|b| whole(u16::from_le_bytes([b[0], b[1]]))).collect(),
            _ => bytes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        }
    }

    fn wanted(&self, row: usize, column: usize) -> f32 {
        let sum: f32 = (0..self.product.k as usize).map(|k| number(1, row, k) * number(2, column, k)).sum();
        let bias = if self.product.bias { number(3, 0, column) } else { 0.0 };
        let residual = if self.product.residual_stride.is_some() { number(4, row, column) } else { 0.0 };
        let all = sum + bias + residual;
        if self.product.relu { all.max(0.0) } else { all }
    }

    fn compare(&self, stream: &Stream) {
        let result = self.result(stream);
        for row in 0..self.product.rows as usize {
            let (row_of, rest) = result[row * self.product.y_stride as usize..][..self.product.y_stride as usize].split_at(N);
            let wanted: Vec<_> = (0..N).map(|column| self.wanted(row, column)).collect();
            // fp16 has 11 significant bits: all sums here are multiples of 1/64 below 64
            let exact = row_of.iter().zip(&wanted).all(|(got, want)| match self.product.precision {
                MatmulPrecision::Fp16 => (got - want).abs() <= want.abs() / 1024.0,
                _ => got == want,
            });
            assert!(exact, "row {row} of {:?}: {row_of:?}, not {wanted:?}", self.product);
            assert!(self.product.precision == MatmulPrecision::Fp16 || rest.iter().all(|gap| gap.is_nan()), "{rest:?}");
        }
    }
}

#[test]
fn the_library_is_not_there() {
    alone(test_name!(), || {
        let found = Driver::find(Some(&fakes::driver("old"))).unwrap();
        let device = CudaDevice::open(&found, 0).unwrap();
        let error = CublasLt::find(&found, &device).unwrap_err();
        assert_eq!(error.to_string(), "no cublasLt: libcublasLt.so was not found (.13 or .12)");
        assert_eq!(device.memory().unwrap().device_bytes, 0);
    });
}

#[test]
fn a_library_that_is_too_old_or_told_to_round_is_refused() {
    let refusal = || {
        let found = Driver::find(Some(&fakes::driver("."))).unwrap();
        let device = CudaDevice::open(&found, 0).unwrap();
        CublasLt::find(&found, &device).unwrap_err().to_string()
    };
    let old = test_name!();
    alone_with(old, &[("LAPWING_FAKE_LT_VERSION", "111103"), ("NVIDIA_TF32_OVERRIDE", "0")], || {
        assert_eq!(refusal(), "no cublasLt: 11.11 is too old: 12.0 or newer is needed");
    });
}

#[test]
fn a_library_that_is_told_to_round_is_refused() {
    alone_with(test_name!(), &[("NVIDIA_TF32_OVERRIDE", "1")], || {
        let found = Driver::find(Some(&fakes::driver("."))).unwrap();
        let device = CudaDevice::open(&found, 0).unwrap();
        let message = CublasLt::find(&found, &device).unwrap_err().to_string();
        assert_eq!(message, "no cublasLt: NVIDIA_TF32_OVERRIDE is set: fp32 would not be fp32");
    });
}

#[test]
fn every_precision_and_epilogue() {
    alone(test_name!(), || {
        let (device, lt, mut stream) = open();
        assert_eq!(lt.version(), Version(12, 9));
        for precision in [MatmulPrecision::Fp32, MatmulPrecision::Tf32, MatmulPrecision::Fp16] {
            for (bias, relu, residual_stride) in [
                (false, false, None),
                (true, false, None),
                (false, true, None),
                (true, true, None),
                (true, false, Some(8)),
                (false, false, Some(16)),
            ] {
                let case = Case::new(&stream, MatmulShape { bias, relu, residual_stride, ..product(precision) });
                // SAFETY: matrices of the shape, which live until the result was read.
                let plan = unsafe { lt.plan(&mut stream, case.product, &case.operands) }.unwrap().unwrap();
                stream.fill(&case.blocks[3], 0, case.blocks[3].bytes(), 0xff).unwrap();
                // SAFETY: as above.
                unsafe { lt.enqueue(&stream, &plan, &case.operands) }.unwrap();
                case.compare(&stream);
            }
        }
        assert_eq!(lt.plans().len(), 18);
        device.check().unwrap();
    });
}

#[test]
fn fp32_is_not_rounded_and_tf32_is() {
    alone(test_name!(), || {
        let (_device, lt, mut stream) = open();
        // the last bits of the fp32 significand, which TF32 does not have
        let (x, w) = (1.0_f32 + 2.0_f32.powi(-12), 1.0_f32);
        for (precision, wanted) in [(MatmulPrecision::Fp32, x), (MatmulPrecision::Tf32, 1.0)] {
            let shape = MatmulShape { rows: 1, n: 1, k: 1, x_stride: 8, w_stride: 8, y_stride: 8, ..product(precision) };
            let blocks: Vec<_> = (0..3).map(|_| DeviceBuffer::new(stream.device(), 32).unwrap()).collect();
            blocks[0].upload(&stream, 0, &x.to_le_bytes()).unwrap();
            blocks[1].upload(&stream, 0, &w.to_le_bytes()).unwrap();
            let operands = MatmulOperands {
                x: blocks[0].address(),
                w: blocks[1].address(),
                bias: None,
                residual: None,
                y: blocks[2].address(),
            };
            // SAFETY: matrices of the shape, which live until the result was read.
            let plan = unsafe { lt.plan(&mut stream, shape, &operands) }.unwrap().unwrap();
            // SAFETY: as above.
            unsafe { lt.enqueue(&stream, &plan, &operands) }.unwrap();
            let mut bytes = [0; 4];
            blocks[2].download(&stream, 0, &mut bytes).unwrap();
            assert_eq!(f32::from_le_bytes(bytes), wanted, "{precision:?}");
        }
    });
}

#[test]
fn the_quickest_kernel_that_works_is_kept() {
    alone(test_name!(), || {
        let (_device, lt, mut stream) = open();
        let case = Case::new(&stream, product(MatmulPrecision::Fp32));
        // SAFETY: matrices of the shape, which live until the plan is made: nothing else is enqueued.
        let mut plan = || unsafe { lt.plan(&mut stream, case.product, &case.operands) }.unwrap();
        let first = plan().unwrap();
        let tuning = first.tuning();
        // not the library's preferred algorithm, 21, nor 22, which it rejects
        assert_eq!((tuning.algorithm, tuning.proposed, tuning.refused), (23, 3, 1));
        assert_eq!((tuning.tile, tuning.stages, tuning.split_k, tuning.workspace_bytes), (20, 8, 2, 1 << 20));
        assert!(tuning.time.as_micros() >= 200 && tuning.time.as_micros() < 2000, "{tuning:?}");
        assert!(Arc::ptr_eq(&first, &plan().unwrap()));
        assert_eq!(lt.plans(), [(case.product, Some(tuning))]);
    });
}

#[test]
fn shapes_without_a_kernel_and_shapes_that_are_none() {
    alone(test_name!(), || {
        let (device, lt, mut stream) = open();
        let none = MatmulShape { k: 13, x_stride: 16, ..product(MatmulPrecision::Fp32) };
        let case = Case::new(&stream, none);
        // SAFETY: matrices of the shape, which live until the plan is made.
        let plan = |stream: &mut Stream, product, operands: &MatmulOperands| unsafe { lt.plan(stream, product, operands) };
        assert!(plan(&mut stream, none, &case.operands).unwrap().is_none());
        assert_eq!(lt.plans(), [(none, None)]);
        let usual = product(MatmulPrecision::Fp32);
        for wrong in [
            MatmulShape { rows: 0, ..usual },
            MatmulShape { x_stride: 6, ..usual },
            MatmulShape { w_stride: 6, ..usual },
            MatmulShape { y_stride: 4, ..usual },
            MatmulShape { residual_stride: Some(4), ..usual },
            MatmulShape { relu: true, residual_stride: Some(8), ..usual },
        ] {
            assert!(matches!(plan(&mut stream, wrong, &case.operands), Err(DeviceError::Lt { .. })), "{wrong:?}");
        }
        let case = Case::new(&stream, usual);
        let found = plan(&mut stream, usual, &case.operands).unwrap().unwrap();
        let bias = Some(case.operands.x);
        for wrong in [
            MatmulOperands { x: case.operands.x + 4, ..case.operands },
            MatmulOperands { y: 0, ..case.operands },
            MatmulOperands { bias, ..case.operands },
        ] {
            // SAFETY: rejected.
            let refused = unsafe { lt.enqueue(&stream, &found, &wrong) };
            assert!(matches!(refused, Err(DeviceError::Lt { .. })), "{wrong:?}");
        }
        device.check().unwrap();
    });
}

#[test]
fn a_product_in_a_graph() {
    alone(test_name!(), || {
        let (device, lt, mut stream) = open();
        let case = Case::new(&stream, MatmulShape { bias: true, ..product(MatmulPrecision::Fp32) });
        // SAFETY: matrices of the shape, which live until the last result was read.
        let plan = unsafe { lt.plan(&mut stream, case.product, &case.operands) }.unwrap().unwrap();
        let capture = Capture::begin(&mut stream).unwrap();
        // SAFETY: as above.
        unsafe { capture.enqueue(&lt, &plan, &case.operands) }.unwrap();
        let graph = capture.end().unwrap();
        // the fake library's products are host functions
        assert_eq!(graph.counts().total(), 1);
        // the graph keeps the workspace alive
        drop((lt, plan));
        for _ in 0..10 {
            stream.fill(&case.blocks[3], 0, case.blocks[3].bytes(), 0xff).unwrap();
            graph.launch(&stream).unwrap();
            case.compare(&stream);
        }
        drop((graph, case));
        assert_eq!(device.memory().unwrap().device_bytes, 0);
        device.check().unwrap();
    });
}
