//! Compares every operation with candle's composed operations, forward and backward.

use candle_core::{D, Device, Var};

use super::*;

/// Pseudo-random numbers between -1 and 1.
fn variable(shape: (usize, usize), seed: u64) -> Var {
    let mut random = fastrand::Rng::with_seed(seed);
    let numbers: Vec<f32> = (0..shape.0 * shape.1).map(|_| random.f32() * 2.0 - 1.0).collect();
    Var::from_tensor(&Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap()).unwrap()
}

/// A pseudo-random vector.
fn vector(width: usize, seed: u64) -> Var {
    Var::from_tensor(&variable((1, width), seed).squeeze(0).unwrap()).unwrap()
}

fn assert_near(ours: &Tensor, theirs: &Tensor, what: &str) {
    assert_eq!(ours.dims(), theirs.dims(), "{what}");
    let (ours, theirs) = (numbers(ours).unwrap(), numbers(theirs).unwrap());
    for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        let allowed = 2e-5 * theirs.abs().max(1.0);
        assert!((ours - theirs).abs() <= allowed, "{what}: {ours} and {theirs} at {at}");
    }
}

/// Asserts that both tensors have the same numbers and send the same gradients to all variables.
fn assert_same(ours: &Tensor, theirs: &Tensor, variables: &[&Var]) {
    assert_near(ours, theirs, "forward");
    // Weights make the gradients differ from each other.
    let weights = variable(ours.dims2().unwrap(), 99);
    let backward = |out: &Tensor| {
        (out * weights.as_detached_tensor()).unwrap().sum_all().unwrap().backward().unwrap()
    };
    let (ours, theirs) = (backward(ours), backward(theirs));
    for (at, variable) in variables.iter().enumerate() {
        let ours = ours.get(variable).expect("a gradient");
        assert_near(ours, theirs.get(variable).expect("a gradient"), &format!("variable {at}"));
    }
}

#[test]
fn linear_is_the_composed_one_forward_and_backward() {
    for rows in [1, 37] {
        let (x, weights, bias) = (variable((rows, 24), 1), variable((24, 10), 2), vector(10, 3));
        let ours = linear(&x, &weights, &bias).unwrap();
        let theirs = x.matmul(&weights).unwrap().broadcast_add(&bias).unwrap();
        assert_same(&ours, &theirs, &[&x, &weights, &bias]);
    }
}

#[test]
fn norm_is_the_composed_one_forward_and_backward() {
    let (x, scale, shift) = (variable((19, 33), 4), vector(33, 5), vector(33, 6));
    let ours = norm(&x, &scale, &shift).unwrap();
    let theirs = candle_nn::ops::layer_norm_slow(&x, &scale, &shift, EPSILON).unwrap();
    assert_same(&ours, &theirs, &[&x, &scale, &shift]);
}

/// Attention of one sequence, composed of candle's operations.
fn composed(queries: &Tensor, keys: &Tensor, heads: usize) -> Tensor {
    let width = queries.dims2().unwrap().1;
    let head = width / heads;
    let parts: Vec<Tensor> = (0..width)
        .step_by(head)
        .map(|at| {
            let query = queries.narrow(1, at, head).unwrap().contiguous().unwrap();
            let key = keys.narrow(1, at, head).unwrap().contiguous().unwrap();
            let value = keys.narrow(1, width + at, head).unwrap().contiguous().unwrap();
            let scores = query.matmul(&key.t().unwrap()).unwrap();
            let scores = (scores / (head as f64).sqrt()).unwrap();
            candle_nn::ops::softmax(&scores, D::Minus1).unwrap().matmul(&value).unwrap()
        })
        .collect();
    Tensor::cat(&parts, 1).unwrap()
}

#[test]
fn attention_is_the_composed_one_of_each_sequence_forward_and_backward() {
    let (queries, keys) = (variable((30, 24), 7), variable((45, 48), 8));
    let sequences = [(0..1, 0..7), (1..20, 7..8), (20..30, 8..45)];
    let ours = attention(&queries, &keys, 3, &sequences).unwrap();
    let parts: Vec<Tensor> = sequences
        .iter()
        .map(|(asking, asked)| {
            let asking = queries.narrow(0, asking.start, asking.len()).unwrap();
            composed(&asking, &keys.narrow(0, asked.start, asked.len()).unwrap(), 3)
        })
        .collect();
    assert_same(&ours, &Tensor::cat(&parts, 0).unwrap(), &[&queries, &keys]);
}

#[test]
fn attention_to_nothing_gives_zeros() {
    let (queries, keys) = (variable((3, 8), 9), variable((2, 16), 10));
    let out = attention(&queries, &keys, 2, &[(0..2, 0..2), (2..3, 2..2)]).unwrap();
    assert_eq!(
        out.narrow(0, 2, 1).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap(),
        [0.0; 8]
    );
    let grads = out.sum_all().unwrap().backward().unwrap();
    assert!(grads.get(&queries).is_some());
}
