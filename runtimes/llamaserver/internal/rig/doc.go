// Package rig is the kit of tests that run a real llama-server with a front before it: how a server is started, asked, killed and waited for, and
// the requests and conversations that it gets.
//
// It uses what package llamaserver exports, so that tests with real servers can be in several packages, each of which runs in less than three minutes.
package rig
