//! Where a report comes from.

/// The command that asked for it, and the program that answered.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Provenance {
    /// The command.
    pub command: String,
    /// The commit the program was built from, with `-dirty` where its sources were not the commit's; null where its build
    /// did not know.
    pub commit: Option<String>,
}

impl Provenance {
    /// For a reader, as HTML.
    pub(crate) fn html(&self) -> String {
        let commit = self.commit.as_deref().unwrap_or("not known");
        format!(
            "<p>Command: <code>{}</code><br>Commit: <code>{commit}</code></p>",
            self.command
        )
    }
}
