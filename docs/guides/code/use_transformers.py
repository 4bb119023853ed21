from transformers import AutoTokenizer, GPT2LMHeadModel

tokenizer = AutoTokenizer.from_pretrained("my-gpt2")
model = GPT2LMHeadModel.from_pretrained("my-gpt2")
inputs = tokenizer("早上，下着小雨，", return_tensors="pt")
output = model.generate(**inputs, max_new_tokens=20, do_sample=False)
print(tokenizer.decode(output[0]))
