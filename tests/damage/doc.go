// Package damage damages a small store in every way that files can be damaged, and uses it. It has tests only, and no more
// of the database than its users have.
//
// The store has every kind of file and of record, in two states: as Close leaves it, and as a kill leaves it. One case is one
// damage: a flipped bit, a cut file, a zeroed page, two pages swapped, a file that is missing, empty, of another store, of an
// older generation, a folder, a link, a pipe, unreadable. After each the store is verified, opened, used and closed:
//
//   - nothing panics, hangs, or allocates much more than without damage;
//   - no restored byte is wrong;
//   - what was not damaged is there in full (laws_test.go says what a damage may cost);
//   - Verify names the file and the place, for every byte that anything could ever read.
//
// An ordinary run tries a sample of 1,200 cases. DORMOUSE_DAMAGE=all tries everything, in two processes that are started anew should one
// die, DORMOUSE_DAMAGE=100000-200000 a range of the cases, and DORMOUSE_DAMAGE=4711 one. The kinds of cases come one after
// the other, those that find most first. DORMOUSE_DAMAGE_SEED chooses another sample and other bits of zero bytes;
// DORMOUSE_FAULTS=5m lets TestCutUnderTheStore run longer.
//
// faults_unix_test.go and cutting_unix_test.go are about files that somebody cuts while they are mapped, folder_unix_test.go about the directory.
package damage
