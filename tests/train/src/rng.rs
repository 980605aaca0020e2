//! The random numbers of data, initial weights and samples: one small generator, so that a seed means the same everywhere.
//! Called by the grammars, the trainer and the sampler.

/// xorshift64* with a mixed seed: nearby seeds give unrelated streams.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator for `seed`; any value will do, zero too.
    pub fn new(seed: u64) -> Self {
        // Story seeds are consecutive numbers; without the mixing their first draws would look alike.
        let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        Self { state: z | 1 }
    }

    /// The next 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }

    /// A float in [0, 1).
    pub fn unit(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 / 16_777_216.0
    }

    /// An index below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.next_u32()) * n as u64) >> 32) as usize
    }

    /// One of `items`, which must not be empty.
    pub fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }

    /// A sample of the normal distribution with mean 0 and deviation 1.
    pub fn normal(&mut self) -> f32 {
        // Box and Muller; 1 - unit() is never 0.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f32::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn the_same_seed_gives_the_same_stream_and_a_neighbour_another() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            [rng.next_u32(), rng.next_u32(), rng.next_u32()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_ne!(draw(0), draw(1));
    }

    #[test]
    fn draws_cover_their_range_evenly() {
        let mut rng = Rng::new(1);
        let mut counts = [0_u32; 10];
        for _ in 0..10_000 {
            counts[rng.below(10)] += 1;
        }
        assert!(counts.iter().all(|&c| (850..1150).contains(&c)), "{counts:?}");
        let mean = (0..10_000).map(|_| rng.normal()).sum::<f32>() / 10_000.0;
        assert!(mean.abs() < 0.05, "{mean}");
    }
}
