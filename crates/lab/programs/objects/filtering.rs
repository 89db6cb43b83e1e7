//! Collaborative Filtering: what a user may like, by what others liked who liked the same.

use std::collections::BTreeMap;

/// Ratings by user, and how alike items are.
#[derive(Default)]
pub struct Filtering {
    ratings: BTreeMap<u32, BTreeMap<u32, f64>>,
    means: BTreeMap<u32, f64>,
    products: BTreeMap<(u32, u32), f64>,
    alike: BTreeMap<(u32, u32), f64>,
}

impl Filtering {
    /// A user rates an item.
    pub fn rate(&mut self, user: u32, item: u32, rating: f64) {
        self.ratings.entry(user).or_default().insert(item, rating);
    }

    /// Each user's mean.
    pub fn average(&mut self) {
        for (user, ratings) in &self.ratings {
            let sum: f64 = ratings.values().sum();
            self.means.insert(*user, sum / ratings.len() as f64);
        }
    }

    /// For each two items, the products of what users thought of both.
    pub fn multiply(&mut self) {
        self.products.clear();
        for (user, ratings) in &self.ratings {
            let mean = self.means[user];
            for (one, first) in ratings {
                for (other, second) in ratings {
                    *self.products.entry((*one, *other)).or_insert(0.0) += (first - mean) * (second - mean);
                }
            }
        }
    }

    /// Products become cosines.
    pub fn normalize(&mut self) {
        for ((one, other), product) in &self.products {
            let length = (self.products[&(*one, *one)] * self.products[&(*other, *other)]).sqrt();
            let cosine = if length > 0.0 { product / length } else { 0.0 };
            self.alike.insert((*one, *other), cosine);
        }
    }

    /// What a user would rate an item.
    pub fn predict(&self, user: u32, item: u32) -> f64 {
        let (Some(ratings), Some(mean)) = (self.ratings.get(&user), self.means.get(&user)) else {
            return 0.0;
        };
        let (mut sum, mut weight) = (0.0, 0.0);
        for (other, rating) in ratings.iter().filter(|(other, _)| **other != item) {
            let alike = self.alike.get(&(item, *other)).copied().unwrap_or(0.0);
            sum += alike * (rating - mean);
            weight += alike.abs();
        }
        if weight > 0.0 { mean + sum / weight } else { *mean }
    }

    /// The items not rated yet that the user would rate best.
    pub fn recommend(&self, user: u32, many: usize) -> Vec<u32> {
        let rated = self.ratings.get(&user);
        let mut items: Vec<u32> = self.alike.keys().map(|(item, _)| *item).collect();
        items.dedup();
        items.retain(|item| rated.is_none_or(|rated| !rated.contains_key(item)));
        items.sort_by(|one, other| self.predict(user, *other).total_cmp(&self.predict(user, *one)));
        items.truncate(many);
        items
    }

    /// The mean error over the ratings that are known.
    pub fn error(&self) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for (user, ratings) in &self.ratings {
            for (item, rating) in ratings {
                sum += (self.predict(*user, *item) - rating).abs();
                count += 1.0;
            }
        }
        sum / count
    }
}
