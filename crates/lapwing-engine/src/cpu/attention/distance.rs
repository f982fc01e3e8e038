//! The bias of a score by the distance from its query to its key, laid out so that a vector of queries loads its biases at once.

/// Values beyond the reach on both sides: a vector of the widest level.
const MARGIN: usize = 16;

/// A table of biases, a row for each head or one for all.
#[derive(Debug, Clone, PartialEq)]
pub struct DistanceBias {
    /// Rows of `2 · (reach + margin) + 1`, from the key that is furthest behind the query to the one that is furthest before it.
    rows: Vec<f32>,
    stride: usize,
}

impl DistanceBias {
    /// From rows of `width` = `2 · reach + 1` biases: of the key `reach` before the query first, of the one `reach` behind it last.
    /// Those at the ends are also of what is further away.
    #[must_use]
    pub fn new(table: &[f32], width: usize) -> Self {
        let mut rows = Vec::new();
        for row in table.chunks_exact(width.max(1)) {
            let (before, behind) = (row[0], row[row.len() - 1]);
            rows.extend([behind; MARGIN]);
            rows.extend(row.iter().rev());
            rows.extend([before; MARGIN]);
        }
        Self { rows, stride: width + 2 * MARGIN }
    }

    /// Bytes of the table.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.rows)
    }

    /// The number of rows.
    pub(crate) fn count(&self) -> usize {
        self.rows.len() / self.stride
    }

    /// The row of a head.
    pub(crate) fn row(&self, head: usize) -> DistanceRow {
        let row = if self.count() == 1 { 0 } else { head };
        DistanceRow { begin: self.rows[row * self.stride..].as_ptr(), last: self.stride - MARGIN }
    }
}

/// One row of the table; `begin` is null where there is no bias.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DistanceRow {
    begin: *const f32,
    /// The place from which [`MARGIN`] values are of queries beyond the reach behind the key.
    last: usize,
}

impl DistanceRow {
    /// No bias.
    pub(crate) const NONE: Self = Self { begin: std::ptr::null(), last: 0 };

    /// Whether there is no bias.
    #[inline(always)]
    pub(crate) fn is_none(self) -> bool {
        self.begin.is_null()
    }

    /// The biases of a key with the queries from `query` on, [`MARGIN`] of them.
    #[inline(always)]
    pub(crate) fn of(self, query: usize, key: usize) -> *const f32 {
        // the middle of the row is for a query that is its own key
        let middle = self.last / 2 + MARGIN / 2;
        let place = (middle + query).saturating_sub(key).min(self.last);
        self.begin.wrapping_add(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_of_queries_has_the_biases_of_its_distances() {
        // reach 2: distances -2 to 2
        let table: Vec<f32> = vec![1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0];
        let bias = DistanceBias::new(&table, 5);
        assert_eq!(bias.count(), 2);
        for (head, query, key) in (0..2).flat_map(|h| (0..70).flat_map(move |q| (0..70).map(move |k| (h, q, k)))) {
            let row = bias.row(head);
            let at = row.of(query, key);
            for lane in 0..MARGIN {
                let distance = (key as i64 - (query + lane) as i64).clamp(-2, 2);
                // SAFETY: a margin of values follows every place
                let got = unsafe { *at.add(lane) };
                assert_eq!(got, table[head * 5 + (distance + 2) as usize], "{head} {query}+{lane} {key}");
            }
        }
    }
}
