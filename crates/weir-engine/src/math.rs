//! Mathematics without a mathematical library: `libweir.so` links the C library alone, for every program that has it preloaded would have
//! to load the other one too.

use std::f64::consts::{LN_2, SQRT_2};

/// Terms of the series: what comes after them is less than a float can hold.
const TERMS: usize = 11;
/// `1 / (2 n + 1)`.
const RECIPROCALS: [f64; TERMS] = {
    let mut all = [1.0; TERMS];
    let mut n = 1;
    while n < TERMS {
        all[n] = 1.0 / (2 * n + 1) as f64;
        n += 1;
    }
    all
};

/// The natural logarithm, by the series of the area tangent. What is not above zero is taken for the least that is.
pub fn ln(value: f64) -> f64 {
    const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    const BIAS: i64 = 1023;
    let bits = value.max(f64::MIN_POSITIVE).to_bits();
    let mut exponent = (bits >> MANTISSA_BITS) as i64 - BIAS;
    let mut mantissa = f64::from_bits(bits & ((1 << MANTISSA_BITS) - 1) | 1f64.to_bits());
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let series = RECIPROCALS.iter().rev().fold(0.0, |sum, reciprocal| sum * z * z + reciprocal);
    exponent as f64 * LN_2 + 2.0 * z * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_as_exact_as_a_float() {
        for value in [1.0, 0.5, 0.01, 1.41, 1.42, 2.0, 3.0, 7.0, 10.0, 1023.0, 999_999_999.0, 1e-300, 1e300] {
            let exact = f64::ln(value);
            assert!(
                (ln(value) - exact).abs() <= 1e-14 * exact.abs().max(1.0),
                "{value}: {} and not {exact}",
                ln(value)
            );
        }
        assert_eq!(ln(0.0), ln(f64::MIN_POSITIVE));
    }
}
