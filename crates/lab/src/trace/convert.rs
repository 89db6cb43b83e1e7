//! From one form to another.

use super::dramsim3::DramSim3Writer;
use super::error::Error;
use super::native::NativeWriter;
use super::ramulator::RamulatorWriter;
use super::{Form, Trace, Writer};
use std::io::{self, Write};

/// What was converted.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Converted {
    /// Records read.
    pub records: u64,
    /// Instructions, or cycles, of all cores together.
    pub instructions: u64,
}

/// Why converting failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The trace that is read.
    #[error(transparent)]
    In(#[from] Error),
    /// The trace that is written.
    #[error("writing the trace: {0}")]
    Out(#[from] io::Error),
    /// The form is only read.
    #[error("{0} is a form that is read, not written; written are native, dramsim3, ramulator")]
    Form(Form),
}

/// Writes the records of `trace`, at most `limit`, to `output` in another form.
///
/// Forms of memory requests get one request for each line of 64 bytes that an access touches, and
/// no persist, fence or commit; a core's instructions count as cycles.
pub fn convert(
    trace: &mut Trace,
    output: impl Write,
    form: Form,
    limit: u64,
) -> Result<Converted, ConvertError> {
    match form {
        Form::Native => {
            let header = trace.header().clone();
            pour(trace, NativeWriter::new(output, &header)?, limit)
        }
        Form::DramSim3 => pour(trace, DramSim3Writer::new(output), limit),
        Form::Ramulator => pour(trace, RamulatorWriter::new(output), limit),
        read_only => Err(ConvertError::Form(read_only)),
    }
}

fn pour(trace: &mut Trace, mut writer: impl Writer, limit: u64) -> Result<Converted, ConvertError> {
    let mut done = Converted::default();
    while done.records < limit {
        let Some(record) = trace.next_record()? else {
            break;
        };
        writer.write(&record)?;
        done.records += 1;
        done.instructions += u64::from(record.after);
    }
    writer.finish()?;
    Ok(done)
}
