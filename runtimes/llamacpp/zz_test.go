package llamacpp_test
import ("testing";"os";"context";"strings";"github.com/dormousekv/dormouse/db";"github.com/dormousekv/dormouse/quant";"github.com/dormousekv/dormouse/kv";"github.com/dormousekv/dormouse/runtimes/llamacpp/llama")
func TestZZ(t *testing.T){
 lib,api:=library(t)
 path := os.Getenv("DORMOUSE_LLAMA_MODEL")
 for _,th:=range []int{1,2}{
 r := rigFor(t, lib, api, path, llama.ContextOptions{Tokens: 1024, Batch: 256, MicroBatch: 256, Threads: th}, db.Options{Codec: quant.Raw})
 tokens, _ := r.model.Tokenize(strings.Repeat(story, 12), true)
 p:=kv.Tokens(tokens[:768]...)
 a:=r.evaluated(p,256,0)
 lo,hi:=a[0],a[0]; for _,x:=range a{lo=min(lo,x);hi=max(hi,x)}
 t.Log(th,"spread",lo,hi,"again",difference(a,r.evaluated(p,256,0)),"128",difference(a,r.evaluated(p,128,0)),"250",difference(a,r.evaluated(p,250,0)))
 // restored at 512 
 c:=r.context(); s:=r.attach(c,nil); if err:=s.Prefill(context.Background(),p,0,0);err!=nil{t.Fatal(err)}
 t.Log("prefill",difference(a,c.Logits(-1)))
 s.Save(context.Background(),p,0)
 c2:=r.context(); s2:=r.attach(c2,nil); got,err:=s2.Restore(context.Background(),p.Prefix(513),0); t.Log(got.Tokens,err)
 s2.Prefill(context.Background(),p,512,0); t.Log("restored 512",difference(a,c2.Logits(-1)))
 // own blob at 512
 c3:=r.context(); s3:=r.attach(c3,nil); s3.Prefill(context.Background(),p.Prefix(512),0,0)
 n:=api.StateSize(c3.Pointer(),0,0); b:=make([]byte,n); api.StateGet(c3.Pointer(),&b[0],n,0,0)
 c4:=r.context(); api.StateSet(c4.Pointer(),&b[0],n,0,0)
 c4.Decode(p.Tokens[512:768],512,0); t.Log("llama's own blob at 512",difference(a,c4.Logits(-1)), difference(c2.Logits(-1),c4.Logits(-1)))
 }
}
