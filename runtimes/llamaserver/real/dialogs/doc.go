// Package dialogs has tests, before real servers, of conversations that grow: each answer is that of the server alone, the next turn goes to its slot, and every endpoint and field does what the docs say.
package dialogs
