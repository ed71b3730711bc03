// Package inside has the options of a store that only its own tools and tests set. db.Options has a field of their type, which nobody
// outside of db can name.
package inside
