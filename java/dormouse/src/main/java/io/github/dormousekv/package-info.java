/**
 * Dormouse for Java: a store on disk for the KV cache of language models' prompts.
 *
 * <p>{@link Store} opens a folder, {@link Model} is a model that is registered in it, {@link Match} a stored prefix of a prompt. All three are
 * closed by whoever opened them; a call after that is a {@link DormouseException}, also if another thread has closed it. All methods may be called
 * from any thread, several at a time. Rows are in direct ByteBuffers; nothing that is given is copied or kept, but token ids, which are copied.
 *
 * <p>docs/java.md has a program to begin with, docs/c.md what a descriptor says, docs/embedding.md what prompts, rows and scopes are.
 */
package io.github.dormousekv;
