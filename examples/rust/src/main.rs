//! Heat spreads over a square plate: the Rust version of `examples/c/heat.c`, where it is explained.
//! The plate is cut into bands of rows; the file has the same bytes.
//!
//! ```console
//! $ MPICC=mpicc cargo build --release
//! $ mpirun -n 4 target/release/heat -n 512 -s 200 -i 50
//! ```

mod file;

use file::{Error, File};
use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Root, Source};
use std::ops::Range;

const MAGIC: i64 = 0x5441_4548; // "HEAT"
const HEADER_BYTES: u64 = 4 * 8;

struct Options {
    cells: usize,
    steps: i64,
    interval: i64,
    restart: bool,
    file: String,
}

/// This process's rows, with a row of halo above and below, and a column of zeros at either side.
struct Plate {
    comm: SimpleCommunicator,
    cells: usize,
    rows: Range<usize>,
    field: Vec<f64>,
}

impl Plate {
    fn cut(comm: SimpleCommunicator, cells: usize) -> Self {
        let (rank, size) = (comm.rank() as usize, comm.size() as usize);
        let rows = cells * rank / size..cells * (rank + 1) / size;
        let field = vec![0.0; (rows.len() + 2) * (cells + 2)];
        Plate { comm, cells, rows, field }
    }

    fn width(&self) -> usize {
        self.cells + 2
    }

    /// The cells of row `row`, counted with the halo.
    fn inner(&self, row: usize) -> Range<usize> {
        row * self.width() + 1..(row + 1) * self.width() - 1
    }

    /// A hot rectangle, off the middle.
    fn heat_up(&mut self) {
        let n = self.cells;
        for (row, y) in self.rows.clone().enumerate() {
            let begin = self.inner(row + 1).start;
            for x in 0..n {
                let hot = y >= n / 8 && y < n / 2 && x >= n / 4 && x < 5 * n / 8;
                self.field[begin + x] = if hot { 100.0 } else { 0.0 };
            }
        }
    }

    fn exchange_halo(&mut self) {
        let (rank, height) = (self.comm.rank(), self.rows.len());
        let up = (rank > 0).then(|| rank - 1);
        let down = (rank + 1 < self.comm.size()).then_some(rank + 1);
        self.shift(1, up, height + 1, down);
        self.shift(height, down, 0, up);
    }

    /// Sends a row one way and receives one from the other side.
    fn shift(&mut self, send_row: usize, to: Option<i32>, receive_row: usize, from: Option<i32>) {
        let outgoing = self.field[self.inner(send_row)].to_vec();
        let place = self.inner(receive_row);
        mpi::request::scope(|scope| {
            let sending = to.map(|rank| self.comm.process_at_rank(rank).immediate_send(scope, &outgoing[..]));
            if let Some(rank) = from {
                self.comm.process_at_rank(rank).receive_into(&mut self.field[place]);
            }
            if let Some(request) = sending {
                request.wait();
            }
        });
    }

    fn step(&mut self) {
        self.exchange_halo();
        let (old, width) = (&self.field, self.width());
        let mut new = vec![0.0; old.len()];
        for row in 1..=self.rows.len() {
            for i in self.inner(row) {
                let around = old[i - 1] + old[i + 1] + old[i - width] + old[i + width];
                new[i] = old[i] + 0.2 * (around - 4.0 * old[i]);
            }
        }
        self.field = new;
    }

    /// Where this process's rows begin in the file.
    fn offset(&self) -> u64 {
        HEADER_BYTES + (self.rows.start * self.cells * size_of::<f64>()) as u64
    }

    fn write_checkpoint(&self, name: &str, done: i64) -> Result<(), Error> {
        let rows: Vec<f64> =
            (1..=self.rows.len()).flat_map(|row| &self.field[self.inner(row)]).copied().collect();
        let file = File::create(&self.comm, name)?;
        if self.comm.rank() == 0 {
            file.write_at(0, &[MAGIC, self.cells as i64, done, 0])?;
        }
        file.write_at_all(self.offset(), &rows)?;
        file.close()
    }

    /// Answers with the steps that were done when the checkpoint was written.
    fn read_checkpoint(&mut self, name: &str) -> Result<i64, Error> {
        let mut header = [0i64; 4];
        let mut rows = vec![0.0; self.rows.len() * self.cells];
        let file = File::open(&self.comm, name)?;
        file.read_at_all(0, &mut header)?;
        if header[0] != MAGIC || header[1] != self.cells as i64 {
            eprintln!("heat: {name} is no checkpoint of a plate of {} cells", self.cells);
            self.comm.abort(1);
        }
        file.read_at_all(self.offset(), &mut rows)?;
        file.close()?;
        for (row, cells) in rows.chunks(self.cells).enumerate() {
            let place = self.inner(row + 1);
            self.field[place].copy_from_slice(cells);
        }
        Ok(header[2])
    }

    /// On rank 0, the temperature of the hottest cell.
    fn hottest(&self) -> Option<f64> {
        let mine = self.field.iter().copied().fold(0.0, f64::max);
        let root = self.comm.process_at_rank(0);
        if self.comm.rank() == 0 {
            let mut all = 0.0;
            root.reduce_into_root(&mine, &mut all, SystemOperation::max());
            Some(all)
        } else {
            root.reduce_into(&mine, SystemOperation::max());
            None
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Options> {
    let mut options =
        Options { cells: 256, steps: 100, interval: 25, restart: false, file: "heat.ckpt".into() };
    while let Some(word) = words.next() {
        match word.as_str() {
            "-n" => options.cells = words.next()?.parse().ok()?,
            "-s" => options.steps = words.next()?.parse().ok()?,
            "-i" => options.interval = words.next()?.parse().ok()?,
            "-o" => options.file = words.next()?,
            "-r" => options.restart = true,
            _ => return None,
        }
    }
    (options.cells > 0 && options.steps >= 0 && options.interval > 0).then_some(options)
}

fn run(plate: &mut Plate, options: &Options) -> Result<(), Error> {
    let mut done = 0;
    if options.restart {
        done = plate.read_checkpoint(&options.file)?;
    } else {
        plate.heat_up();
    }
    while done < options.steps {
        plate.step();
        done += 1;
        if done % options.interval == 0 {
            plate.write_checkpoint(&options.file, done)?;
        }
    }
    if let Some(hottest) = plate.hottest() {
        let (n, steps) = (options.cells, options.steps);
        println!("heat: {n} x {n} cells, {steps} steps, hottest {hottest:.6}");
    }
    Ok(())
}

fn main() {
    let universe = mpi::initialize().expect("MPI was not initialised before");
    let world = universe.world();
    let Some(options) = parse(std::env::args().skip(1)) else {
        eprintln!("usage: heat [-n CELLS] [-s STEPS] [-i INTERVAL] [-o FILE] [-r]");
        world.abort(2);
    };
    let mut plate = Plate::cut(universe.world(), options.cells);
    if let Err(error) = run(&mut plate, &options) {
        eprintln!("heat: {}: {error}", options.file);
        world.abort(1);
    }
}
