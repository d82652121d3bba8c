//! Draws a map of a world in a terminal. Each character shows two by four dots (Unicode Braille patterns).

/// A map of a world, drawn with characters in a terminal.
#[derive(Debug)]
pub struct WorldMap {
    columns: usize,
    rows: usize,
    low: [f32; 2],
    scale: [f32; 2],
    /// For each character of the map: the bits of its dots, the region of the entity that was drawn last in this
    /// character, and the mark that replaces the dots, if any.
    cells: Vec<(u8, u32, Option<char>)>,
}

/// The bit of each dot in a character, by the column and row of the dot.
const DOTS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
/// The character without dots, to which the bits of the dots are added.
const BLANK: u32 = 0x2800;

impl WorldMap {
    /// Creates an empty map of `columns` × `rows` characters, which shows the world between the corners `low` and
    /// `high`.
    pub fn new(columns: usize, rows: usize, low: [f32; 2], high: [f32; 2]) -> WorldMap {
        let (columns, rows) = (columns.max(1), rows.max(1));
        let dots = [(columns * 2) as f32, (rows * 4) as f32];
        let scale = [0, 1].map(|axis| dots[axis] / (high[axis] - low[axis]).max(f32::MIN_POSITIVE));
        WorldMap { columns, rows, low, scale, cells: vec![(0, 0, None); columns * rows] }
    }

    fn dot(&self, at: [f32; 2]) -> Option<(usize, usize)> {
        let scaled = [0, 1].map(|axis| (at[axis] - self.low[axis]) * self.scale[axis]);
        let (x, y) = (scaled[0] as usize, scaled[1] as usize);
        let inside = scaled.iter().all(|coordinate| *coordinate >= 0.0);
        // North is at the top of the map, so `y` is reversed. An entity on the upper edge of the world is drawn in the
        // last dot, and not beyond it.
        let (x, y) =
            (x.min(self.columns * 2 - 1), (self.rows * 4 - 1).checked_sub(y.min(self.rows * 4 - 1))?);
        inside.then_some((x, y))
    }

    /// Draws an entity of `region` at the point `at` as a dot.
    pub fn draw_dot(&mut self, at: [f32; 2], region: u32) {
        if let Some((x, y)) = self.dot(at) {
            let cell = &mut self.cells[y / 4 * self.columns + x / 2];
            (cell.0, cell.1) = (cell.0 | DOTS[x % 2][y % 4], region);
        }
    }

    /// Draws an entity of `region` at the point `at` as the character `mark`.
    pub fn mark(&mut self, at: [f32; 2], region: u32, mark: char) {
        if let Some((x, y)) = self.dot(at) {
            let cell = &mut self.cells[y / 4 * self.columns + x / 2];
            (cell.1, cell.2) = (region, Some(mark));
        }
    }

    /// Returns the lines of the map. With `coloured`, the colour of a character shows the region.
    pub fn lines(&self, coloured: bool) -> Vec<String> {
        const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 31];
        let line = |row: &[(u8, u32, Option<char>)]| {
            let (mut line, mut colour) = (String::new(), 0);
            for (dots, region, mark) in row {
                let wanted = COLOURS[*region as usize % COLOURS.len()];
                if coloured && (*dots != 0 || mark.is_some()) && colour != wanted {
                    line.push_str(&format!("\x1b[{wanted}m"));
                    colour = wanted;
                }
                line.push(mark.unwrap_or_else(|| char::from_u32(BLANK + u32::from(*dots)).unwrap_or(' ')));
            }
            if colour != 0 {
                line.push_str("\x1b[0m");
            }
            line
        };
        self.cells.chunks(self.columns).map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corners_of_the_world_are_corners_of_the_map() {
        let mut map = WorldMap::new(2, 1, [0.0, 0.0], [4.0, 4.0]);
        map.draw_dot([0.0, 0.0], 1);
        map.draw_dot([4.0, 4.0], 1);
        map.draw_dot([9e9, -1.0], 1);
        assert_eq!(map.lines(false), ["⡀⠈"]);
        map.mark([0.5, 3.0], 2, '+');
        assert_eq!(map.lines(false), ["+⠈"]);
        assert!(map.lines(true)[0].contains("\x1b[32m+"), "region 2 is green");
    }
}
