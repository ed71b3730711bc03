// Package version holds the release's number, once. CHANGELOG's newest heading, 'kvdump --version' and the 'go get' and 'go install'
// lines of the docs must agree with it; a test compares them.
package version
