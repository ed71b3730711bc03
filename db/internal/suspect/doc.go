// Package suspect judges records that failed a check: damaged, destroyed, another prompt's, or only not to be read just now.
package suspect
