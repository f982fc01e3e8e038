//! The demo's feature table: tickets by their number, in gzip pages. To read one row, its page is unpacked, checked and searched.
//!
//! It replaces the store that a real handler queries over the network. Unpacking a page of [`ROWS_PER_PAGE`] rows (about 32 KiB)
//! takes some tens of microseconds to a few hundred; the checksum is gzip's CRC-32.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::corpus::Ticket;

/// The number of the first ticket; the others follow without a gap.
pub(crate) const FIRST_ID: i64 = 10_000;
/// Rows of a page; the last page may have fewer.
const ROWS_PER_PAGE: usize = 128;
/// The most bytes that a page may have when unpacked.
const MAX_PAGE: u64 = 1 << 20;

/// Why a row cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LookupError {
    /// The ticket does not exist.
    #[error("{0} is not in the feature table")]
    Unknown(i64),
    /// The page is broken.
    #[error("the page of {id} is unreadable: {reason}")]
    Unreadable { id: i64, reason: String },
}

/// Texts by the number of their ticket. Memory: the packed pages, about a third of the text.
#[derive(Debug)]
pub(crate) struct FeatureTable {
    pages: Vec<Box<[u8]>>,
    rows: usize,
}

impl FeatureTable {
    /// Packs tickets; the first gets the number [`FIRST_ID`].
    ///
    /// # Errors
    ///
    /// An error of the compressor, which does not occur in memory.
    pub(crate) fn pack(tickets: &[Ticket]) -> io::Result<Self> {
        let page = |(at, rows): (usize, &[Ticket])| {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            for (row, ticket) in rows.iter().enumerate() {
                writeln!(packed, "{}\t{}", id(at * ROWS_PER_PAGE + row), ticket.text)?;
            }
            packed.finish().map(Vec::into_boxed_slice)
        };
        let pages = tickets.chunks(ROWS_PER_PAGE).enumerate().map(page).collect::<io::Result<_>>()?;
        Ok(Self { pages, rows: tickets.len() })
    }

    /// Reads the text of a ticket: unpacks its page, checks it and searches it from the start.
    ///
    /// # Errors
    ///
    /// [`LookupError`] with the number.
    pub(crate) fn read(&self, id: i64) -> Result<String, LookupError> {
        let row = id.checked_sub(FIRST_ID).and_then(|row| usize::try_from(row).ok()).filter(|row| *row < self.rows);
        let row = row.ok_or(LookupError::Unknown(id))?;
        let unreadable = |reason: String| LookupError::Unreadable { id, reason };
        let packed = self.pages.get(row / ROWS_PER_PAGE).ok_or(LookupError::Unknown(id))?;
        let mut page = String::with_capacity(64 << 10);
        // the checksum is compared when the end is read
        GzDecoder::new(&**packed).take(MAX_PAGE).read_to_string(&mut page).map_err(|error| unreadable(error.to_string()))?;
        let mut rows = page.lines().filter_map(|line| line.split_once('\t'));
        let found = rows.find(|(key, _)| key.parse() == Ok(id));
        found.map(|(_, text)| text.to_owned()).ok_or_else(|| unreadable("its row is missing".to_owned()))
    }
}

/// The number of the ticket in this row.
pub(crate) fn id(row: usize) -> i64 {
    FIRST_ID.saturating_add(i64::try_from(row).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::corpus::tickets;
    use super::*;

    #[test]
    fn every_row_comes_back() {
        let tickets = tickets(5, 2 * ROWS_PER_PAGE + 3);
        let table = FeatureTable::pack(&tickets).unwrap();
        assert_eq!((table.rows, table.pages.len()), (tickets.len(), 3));
        for row in [0, 1, ROWS_PER_PAGE - 1, ROWS_PER_PAGE, tickets.len() - 1] {
            assert_eq!(table.read(id(row)).unwrap(), tickets[row].text);
        }
        let packed: usize = table.pages.iter().map(|page| page.len()).sum();
        assert!(packed * 2 < tickets.iter().map(|ticket| ticket.text.len()).sum(), "{packed} bytes");
    }

    #[test]
    fn an_unknown_ticket_and_a_broken_page_are_named() {
        let mut table = FeatureTable::pack(&tickets(5, 3)).unwrap();
        for unknown in [-5, FIRST_ID - 1, FIRST_ID + 3, i64::MIN] {
            assert_eq!(table.read(unknown), Err(LookupError::Unknown(unknown)));
        }
        let checksum = table.pages[0].len() - 8;
        table.pages[0][checksum] ^= 1;
        let error = table.read(id(1)).unwrap_err().to_string();
        assert!(error.starts_with("the page of 10001 is unreadable: "), "{error}");
    }
}
