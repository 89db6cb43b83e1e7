//! Naive Bayes: which class a document is of, by its words.

use std::collections::{BTreeMap, BTreeSet};

/// Documents that were learned from, and the model.
#[derive(Default)]
pub struct Bayes {
    documents: Vec<(u32, Vec<String>)>,
    classes: BTreeMap<u32, u64>,
    words: BTreeMap<(u32, String), u64>,
    totals: BTreeMap<u32, u64>,
    vocabulary: BTreeSet<String>,
    priors: BTreeMap<u32, f64>,
    likelihoods: BTreeMap<(u32, String), f64>,
}

impl Bayes {
    /// A document of a class.
    pub fn read(&mut self, class: u32, text: String) {
        let words = text.split_whitespace().map(|word| word.to_lowercase()).collect();
        self.documents.push((class, words));
    }

    /// Documents of each class are counted.
    pub fn count_classes(&mut self) {
        for (class, _) in &self.documents {
            *self.classes.entry(*class).or_insert(0) += 1;
        }
    }

    /// Words of each class are counted.
    pub fn count_words(&mut self) {
        for (class, words) in &self.documents {
            for word in words {
                *self.words.entry((*class, word.clone())).or_insert(0) += 1;
                *self.totals.entry(*class).or_insert(0) += 1;
                self.vocabulary.insert(word.clone());
            }
        }
    }

    /// How likely each class is.
    pub fn weigh_classes(&mut self) {
        let all = self.documents.len() as f64;
        for (class, count) in &self.classes {
            self.priors.insert(*class, (*count as f64 / all).ln());
        }
    }

    /// How likely each word is in each class; one that was not seen is counted once.
    pub fn weigh_words(&mut self) {
        for (class, total) in &self.totals {
            for word in &self.vocabulary {
                let count = self.words.get(&(*class, word.clone())).copied().unwrap_or(0);
                let share = (count + 1) as f64 / (*total + self.vocabulary.len() as u64) as f64;
                self.likelihoods.insert((*class, word.clone()), share.ln());
            }
        }
    }

    /// The class that a text is most likely of.
    pub fn classify(&self, text: String) -> Option<u32> {
        let score = |class: u32, prior: f64| {
            let mut score = prior;
            for word in text.split_whitespace() {
                score += self
                    .likelihoods
                    .get(&(class, word.to_lowercase()))
                    .copied()
                    .unwrap_or(0.0);
            }
            score
        };
        let scores = self
            .priors
            .iter()
            .map(|(class, prior)| (*class, score(*class, *prior)));
        scores
            .max_by(|one, other| one.1.total_cmp(&other.1))
            .map(|(class, _)| class)
    }

    /// The part of the documents learned from that the model puts into their class.
    pub fn accuracy(&self) -> f64 {
        let is_right = |(class, words): &&(u32, Vec<String>)| self.classify(words.join(" ")) == Some(*class);
        self.documents.iter().filter(is_right).count() as f64 / self.documents.len() as f64
    }
}
