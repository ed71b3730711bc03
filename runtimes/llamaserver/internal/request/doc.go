// Package request reads what clients ask a llama-server to complete, and makes of it the tokens that the server will compute.
//
// It promises that a request is either rendered as the server renders it, as far as anybody can know, or said to pass, with a word why
// ([Pass]): images, several answers, what the client does with slots itself, and parts of /v1/responses and /v1/messages of which it is not known
// what the server makes of them ([Because] names their types). Of parts that releases treat differently it says so ([Request.Unsure]): the caller asks
// the server for its count. What a slot holds afterwards is compared with these tokens by the caller. [Request.PartAt]
// says which part of a request a place in its rendered text belongs to. It must not know slots, or the store.
package request
