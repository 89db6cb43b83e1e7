//! Kmeans: points in groups, each around its centre.

/// Points, centres, and which is whose.
#[derive(Default)]
pub struct Kmeans {
    points: Vec<[f64; 2]>,
    centres: Vec<[f64; 2]>,
    nearest: Vec<usize>,
    sums: Vec<([f64; 2], u64)>,
    moved: f64,
}

fn distance(one: [f64; 2], other: [f64; 2]) -> f64 {
    (one[0] - other[0]).powi(2) + (one[1] - other[1]).powi(2)
}

impl Kmeans {
    /// A point.
    pub fn read(&mut self, x: f64, y: f64) {
        self.points.push([x, y]);
    }

    /// The first centres are points that lie evenly in the input.
    pub fn start(&mut self, groups: usize) {
        let apart = self.points.len() / groups;
        self.centres = (0..groups).map(|group| self.points[group * apart]).collect();
    }

    /// Each point goes to the nearest centre.
    pub fn assign(&mut self) {
        self.nearest.clear();
        for point in &self.points {
            let mut nearest = 0;
            for group in 1..self.centres.len() {
                if distance(*point, self.centres[group]) < distance(*point, self.centres[nearest]) {
                    nearest = group;
                }
            }
            self.nearest.push(nearest);
        }
    }

    /// The points of each group are added up.
    pub fn reduce(&mut self) {
        self.sums = vec![([0.0; 2], 0); self.centres.len()];
        for (point, group) in self.points.iter().zip(&self.nearest) {
            let (sum, count) = &mut self.sums[*group];
            sum[0] += point[0];
            sum[1] += point[1];
            *count += 1;
        }
    }

    /// Centres move to the middle of their groups.
    pub fn average(&mut self) {
        self.moved = 0.0;
        for (centre, (sum, count)) in self.centres.iter_mut().zip(&self.sums) {
            if *count > 0 {
                let middle = [sum[0] / *count as f64, sum[1] / *count as f64];
                self.moved += distance(*centre, middle);
                *centre = middle;
            }
        }
    }

    /// How far the centres moved: whether another round is worth it.
    pub fn moved(&self) -> f64 {
        self.moved
    }

    /// The centres.
    pub fn centres(&self) -> Vec<[f64; 2]> {
        self.centres.clone()
    }
}
