// Rooms counts how well the code can be read: arrows between files, methods of structs, lines of files, locks, lines of the API.
//
//	go run ./tools/rooms [-v] [packages]
//
// Without packages it looks at the whole project. It prints every figure, and exits with 1 if one is over its bar:
//
//   - at most 15 % of a package's arrows run back up, if the package has 8 arrows or more;
//   - at most 70 methods of a struct;
//   - at most 400 lines of a Go file, tests included.
//
// # Arrows
//
// An arrow runs from file A to file B of one package if the code of A uses a name that B declares: a function, a type, a method, a field,
// a constant or a variable. Each pair of files has at most one arrow in each direction, however many names make it. A use of a struct's field is
// an arrow to the file of the struct. A method in file A of a type in file B is an arrow from A to B. Tests and generated files have no arrows. The
// files are those that Linux builds.
//
// Now write the files of a package below each other, in the order in which the fewest arrows run back up. A package with few such arrows can be read
// from top to bottom: what composes comes first, the helpers last. Arrows run back up only within a circle of files. For a circle of up to 20 files
// the tool finds the best order there is. For a larger one it finds the best order of a search with a fixed length and a fixed seed, and the line
// says "searched". So the figures are the same each time.
//
// # Methods
//
// The methods of a struct are its own, those of its embedded fields, and its fields that hold a function. Names that another package does not export
// are left out.
//
// # Locks
//
// Locks are the places in the table of internal/lock, and every field or variable of type sync.Mutex or sync.RWMutex elsewhere. The store is db and
// the packages that db imports. Channels that serve as locks are not counted: the page on the design names them.
package main
