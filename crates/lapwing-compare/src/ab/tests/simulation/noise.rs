//! Noise of one side's latency: independent, heavy-tailed, tied, autocorrelated, or with pauses. Logarithms of the factor by which
//! a request takes longer; medians are 0.

use crate::ab::tests::stream::SplitMix;

/// A kind of noise. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Noise {
    /// Lognormal and independent.
    Independent,
    /// Student's t with 2 degrees of freedom: infinite variance.
    StudentT,
    /// 2 % of the requests take longer by a Pareto factor of exponent 1.1: infinite variance, mean 11.
    Spikes,
    /// Rounded to steps of 2 %: many ties.
    Steps,
    /// A share of the variance is autocorrelated with a time constant.
    Autoregressive { tau_s: f64, share: f64 },
    /// Three times as long while a pause lasts; pauses begin at random, on average `every_s` apart.
    Pauses { length_s: f64, every_s: f64 },
}

/// A seeded source of normal and other values.
pub(crate) struct Random {
    mix: SplitMix,
    spare: Option<f64>,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut mix = SplitMix::new(seed);
        // streams of neighbouring seeds share no values
        let seed = mix.next();
        Self { mix: SplitMix::new(seed), spare: None }
    }

    pub(crate) fn uniform(&mut self) -> f64 {
        self.mix.uniform()
    }

    /// Standard normal, by Box and Muller.
    pub(crate) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * self.uniform()).sin_cos();
        self.spare = Some(radius * sin);
        radius * cos
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform().ln()
    }
}

/// The noise of one side over time.
pub(crate) struct SideNoise {
    noise: Noise,
    /// The standard deviation of the logarithm.
    scale: f64,
    /// How much of the autocorrelated part stays from one request to the next.
    persistence: f64,
    level: f64,
    pause_from_s: f64,
    pause_until_s: f64,
}

impl SideNoise {
    /// `scale` is the relative noise of a request, 0.05 for 5 %; `step_s` the time between requests of this side.
    pub(crate) fn new(noise: Noise, scale: f64, step_s: f64, random: &mut Random) -> Self {
        let persistence = if let Noise::Autoregressive { tau_s, .. } = noise { (-step_s / tau_s).exp() } else { 0.0 };
        let level = random.normal();
        Self { noise, scale, persistence, level, pause_from_s: 0.0, pause_until_s: 0.0 }
    }

    /// The noise of a request at `now_s`, which rises from call to call.
    pub(crate) fn next(&mut self, now_s: f64, random: &mut Random) -> f64 {
        let normal = random.normal();
        match self.noise {
            Noise::Independent => self.scale * normal,
            Noise::StudentT => self.scale * normal / (-random.uniform().ln()).sqrt(),
            Noise::Spikes => {
                let spike = if random.uniform() < 0.02 { -random.uniform().ln() / 1.1 } else { 0.0 };
                self.scale * normal + spike
            }
            Noise::Steps => (self.scale * normal / 1.02_f64.ln()).round() * 1.02_f64.ln(),
            Noise::Autoregressive { share, .. } => {
                let innovation = (1.0 - self.persistence * self.persistence).sqrt();
                self.level = self.persistence * self.level + innovation * random.normal();
                self.scale * (share.sqrt() * self.level + (1.0 - share).sqrt() * normal)
            }
            Noise::Pauses { length_s, every_s } => {
                while now_s >= self.pause_until_s {
                    self.pause_from_s = self.pause_until_s + random.exponential(every_s - length_s);
                    self.pause_until_s = self.pause_from_s + length_s;
                }
                self.scale * normal + if now_s >= self.pause_from_s { 3.0_f64.ln() } else { 0.0 }
            }
        }
    }
}
