// Rooms counts how well the code can be read: arrows between files, methods of structs, lines of files, locks, lines of the API.
//
//	go run ./tools/rooms [-v] [packages]
//
// Without packages it looks at all of the project. It prints every figure, and exits with 1 if one is over its bar:
//
//   - 15 % of a package's arrows run back up, where the package has 8 arrows or more;
//   - 70 methods of a struct;
//   - 400 lines of a file, tests included.
//
// # Arrows
//
// An arrow runs from file A to file B of one package if the code of A uses a name that B declares: a function, a type, a method, a field,
// a constant or a variable. It counts once, however many names make it. A use of a struct's field is an arrow to the file of the struct. A
// method that is declared in A for a type of B makes an arrow from A to B. Tests and generated files have no arrows. Files are those that
// Linux builds.
//
// The files of a package are written below each other. The order is the one in which the fewest arrows run back up, so a package is read
// from top to bottom: what composes comes first, the helpers last. A circle of files has at least one arrow that runs back up.
// Files that are on no circle cost nothing. For each circle of up to 20 files the order is the best there is. For a larger one it is the best that
// a search of fixed length finds, and the line says "searched". The search has a fixed seed, so the figure is the same each time.
//
// # Methods
//
// The methods of a struct are its own, those that it gets from embedded fields, and its fields that hold a function. Those of embedded
// structs count, too. Names that another package keeps for itself don't.
//
// # Locks
//
// Locks are the places in the table of internal/lock, and every field or variable of type sync.Mutex or sync.RWMutex elsewhere. "The store"
// is db and what it is built from. Channels that serve as locks are not counted. The page on the design lists them.
package main
