// Package folder will own the names in a store's folder, and what is not touched in it because it is somebody else's. Its tests judge
// that through the store.
package folder
