// Package journals keeps the session files of an open store: which are open, what they occupy, what they hold. A session's file is truth as segments
// and log are, and stands beside them: no frame of the log names it. It is deleted when the rows of its scope are.
package journals
