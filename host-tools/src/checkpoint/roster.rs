//! What a model consists of, position by position, and the two ways to compare what a file holds with what a model wants: strictly, and as far as it goes. `RustyML`'s rules, for every format.

use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::fmt;

/// The shapes of a position's inputs, batch axis first; an axis that is free is `None`.
pub type Build = Vec<Vec<Option<u64>>>;

/// The positions of a model or of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// In order.
    pub positions: Vec<Position>,
}

/// A layer, or what stands for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Its path: `0`, `layers.3`.
    pub path: String,
    /// Its type, as its source names it.
    pub type_name: String,
    /// What it was built for; `None` where nobody recorded it.
    pub build: Option<Build>,
    /// Its arrays, in order.
    pub arrays: Vec<Member>,
    /// Layers within it, by name.
    pub sublayers: Vec<(String, Position)>,
}

/// An array of a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name within the position.
    pub name: String,
    /// Whether training changes it.
    pub trainable: bool,
    /// Its shape, as the source has it.
    pub shape: Vec<u64>,
    /// How many values there are.
    pub count: u64,
}

impl Member {
    /// Whether name, kind, shape and number of values are the same.
    fn fits(&self, other: &Self) -> bool {
        self == other
    }

    const fn kind(&self) -> &'static str {
        if self.trainable { "trainable" } else { "non-trainable" }
    }
}

impl Position {
    /// The path of one of its arrays.
    pub fn path_of(&self, member: &Member) -> String {
        format!("{}.{}", self.path, member.name)
    }

    fn names(&self) -> Vec<&str> {
        self.arrays.iter().map(|array| array.name.as_str()).collect()
    }

    /// All its paths, those of layers within it too.
    fn all_paths(&self, paths: &mut Vec<String>) {
        paths.extend(self.arrays.iter().map(|array| self.path_of(array)));
        self.sublayers.iter().for_each(|(_, inner)| inner.all_paths(paths));
    }
}

/// What a partial load did, or would do: paths, in the model's order. Every path of the model is in `applied` or `missing`, every path of the file in `applied` or `unused`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Taken from the file.
    pub applied: Vec<String>,
    /// Wanted by the model, and not in the file as the model wants it: kept as they were.
    pub missing: Vec<String>,
    /// In the file, and not wanted by the model as the file has it.
    pub unused: Vec<String>,
}

/// Checks that a file holds exactly what a model wants: the number of layers; then, layer by layer, type, build shapes, number and names of arrays, and array by array kind, shape and number of
/// values; then the layers within it.
///
/// # Errors
/// [`Class::Mismatch`](crate::error::Class::Mismatch) with the first difference, its path and both sides.
pub fn strict(model: &Roster, file: &Roster) -> Result<()> {
    let (wanted, found) = (model.positions.len(), file.positions.len());
    if wanted != found {
        return Err(Error::mismatch(format!("layer count mismatch: the model has {wanted} layers, the file has {found}")));
    }
    model.positions.iter().zip(&file.positions).try_for_each(|(model, file)| strict_position(model, file))
}

/// The place of the first position that [`strict`] refuses, if it does so for the shapes that it was built for.
pub fn first_build_mismatch(model: &Roster, file: &Roster) -> Option<usize> {
    let mut pairs = model.positions.iter().zip(&file.positions);
    let place = pairs.position(|(model, file)| strict_position(model, file).is_err())?;
    let (wanted, found) = (model.positions.get(place)?, file.positions.get(place)?);
    (model.positions.len() == file.positions.len() && wanted.type_name == found.type_name && !same_build(wanted, found)).then_some(place)
}

fn strict_position(model: &Position, file: &Position) -> Result<()> {
    let Position { path, type_name, .. } = model;
    let mismatch = |what: String| Err(Error::mismatch(what));
    if *type_name != file.type_name {
        return mismatch(format!("layer {path} type mismatch: the model has `{type_name}`, the file has `{}`", file.type_name));
    }
    if !same_build(model, file) {
        let (model, file) = (Shapes(model.build.as_ref()), Shapes(file.build.as_ref()));
        return mismatch(format!(
            "layer {path} (`{type_name}`) was built for input shape {model} in the model, and the file records {file}"
        ));
    }
    if model.arrays.len() != file.arrays.len() {
        let (wanted, found) = (model.names(), file.names());
        return mismatch(format!("layer {path} (`{type_name}`) holds the arrays {wanted:?}, and the file holds {found:?}"));
    }
    for (wanted, found) in model.arrays.iter().zip(&file.arrays) {
        let (wanted_path, found_path) = (model.path_of(wanted), file.path_of(found));
        if wanted.name != found.name {
            return mismatch(format!("the model holds `{wanted_path}` where the file holds `{found_path}`"));
        }
        if wanted.trainable != found.trainable {
            return mismatch(format!("`{wanted_path}` is {} in the model, and {} in the file", wanted.kind(), found.kind()));
        }
        if wanted.shape != found.shape {
            return mismatch(format!("`{wanted_path}` has shape {:?} in the model, and {:?} in the file", wanted.shape, found.shape));
        }
        if wanted.count != found.count {
            let (shape, elements, carried) = (&wanted.shape, wanted.count, found.count);
            return mismatch(format!("`{wanted_path}` holds {elements} elements at shape {shape:?}, and the file carries {carried}"));
        }
    }
    let names = |position: &Position| position.sublayers.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if names(model) != names(file) {
        let (wanted, found) = (names(model), names(file));
        return mismatch(format!("layer {path} (`{type_name}`) holds the sublayers {wanted:?}, and the file holds {found:?}"));
    }
    model.sublayers.iter().zip(&file.sublayers).try_for_each(|((_, model), (_, file))| strict_position(model, file))
}

/// Whether the records of both do not contradict each other: a free axis is like any other, and so is no record at all.
fn same_build(model: &Position, file: &Position) -> bool {
    let (Some(a), Some(b)) = (&model.build, &file.build) else { return true };
    let same_axis = |(x, y): (&Option<u64>, &Option<u64>)| x.is_none() || y.is_none() || x == y;
    let same_shape = |(x, y): (&Vec<Option<u64>>, &Vec<Option<u64>>)| x.len() == y.len() && x.iter().zip(y).all(same_axis);
    a.len() == b.len() && a.iter().zip(b).all(same_shape)
}

/// What of a file a model takes. Positions are matched by their paths; within one of the same type and build each array of the model takes the first array of the file that is left with its
/// name, kind, shape and number of values.
pub fn partial(model: &Roster, file: &Roster) -> LoadReport {
    let mut report = LoadReport::default();
    let by_path: HashMap<&str, &Position> = file.positions.iter().map(|position| (position.path.as_str(), position)).collect();
    for position in &model.positions {
        match by_path.get(position.path.as_str()) {
            Some(found) => partial_position(position, found, &mut report),
            None => position.all_paths(&mut report.missing),
        }
    }
    let wanted: HashSet<&str> = model.positions.iter().map(|position| position.path.as_str()).collect();
    file.positions.iter().filter(|found| !wanted.contains(found.path.as_str())).for_each(|extra| extra.all_paths(&mut report.unused));
    report
}

fn partial_position(model: &Position, file: &Position, report: &mut LoadReport) {
    if model.type_name != file.type_name || !same_build(model, file) {
        model.all_paths(&mut report.missing);
        file.all_paths(&mut report.unused);
        return;
    }
    let mut left: Vec<&Member> = file.arrays.iter().collect();
    for wanted in &model.arrays {
        match left.iter().position(|found| wanted.fits(found)) {
            Some(place) => {
                left.remove(place);
                report.applied.push(model.path_of(wanted));
            }
            None => report.missing.push(model.path_of(wanted)),
        }
    }
    report.unused.extend(left.into_iter().map(|array| file.path_of(array)));
    for (name, inner) in &model.sublayers {
        match file.sublayers.iter().find(|(found, _)| found == name) {
            Some((_, found)) => partial_position(inner, found, report),
            None => inner.all_paths(&mut report.missing),
        }
    }
    for (name, inner) in &file.sublayers {
        if !model.sublayers.iter().any(|(wanted, _)| wanted == name) {
            inner.all_paths(&mut report.unused);
        }
    }
}

/// Shapes as `RustyML` prints them: `(None, 4)`, several separated by commas.
struct Shapes<'a>(Option<&'a Build>);

impl fmt::Display for Shapes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axis = |axis: &Option<u64>| axis.map_or_else(|| "None".to_owned(), |size| size.to_string());
        let shape = |shape: &Vec<Option<u64>>| format!("({})", shape.iter().map(axis).collect::<Vec<_>>().join(", "));
        let shapes: Vec<_> = self.0.into_iter().flatten().map(shape).collect();
        f.write_str(&shapes.join(", "))
    }
}
