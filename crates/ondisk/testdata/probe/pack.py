#!/usr/bin/env python3
# Packs images into images.txt: `pack.py images.txt IMAGE...`. Of each: name, what blkid calls it, length; then those rows of
# 16 bytes, with their offset, without which blkid would call it something else.
import subprocess,sys,os
out=open(sys.argv[1],'w')
def kind(p):
    o=subprocess.run(['blkid','-p','-o','export',p],capture_output=True,text=True).stdout
    d=dict(l.split('=',1) for l in o.splitlines() if '=' in l)
    return d.get('TYPE') or d.get('PTTYPE')
def ranges(n):
    r=[(0,516<<10),(max(0,n-(1<<20)),n)]+[(x,x+4096) for x in (1<<20,2<<20,4<<20)]+([(n-3087*512,n-3086*512)] if n>3087*512 else [])
    return [(a,min(b,n)) for a,b in r if a<n]
# blkid takes these by less than we do, or by the second copy of a header: they keep their first sector.
WHOLE=('dos','bitlocker-togo','luks2')
for p in sys.argv[2:]:
    want=kind(p); n=os.path.getsize(p)
    if n<2<<20: n=2<<20
    rows={}
    with open(p,'rb') as f:
        for a,b in ranges(n):
            f.seek(a); d=f.read(b-a)
            for i in range(0,len(d),16):
                if any(d[i:i+16]): rows[a+i]=d[i:i+16]
    t=sys.argv[1]+'.tmp'
    def build(keys):
        with open(t,'wb') as f:
            f.truncate(n)
            for k in keys: f.seek(k); f.write(rows[k])
        return kind(t)
    keys=sorted(rows)
    if want is None or build(keys)!=want: print('SKIP',p,want,build(keys)); continue
    first=[k for k in keys if k<512] if os.path.basename(p) in WHOLE else []
    step=max(1,len(keys)//2)
    while step>=1:
        i=0
        while i<len(keys):
            trial=keys[:i]+keys[i+step:]
            if build(trial)==want: keys=trial
            else: i+=step
        if step==1: break
        step//=2
    print(os.path.basename(p),want,len(keys))
    out.write(f'{os.path.basename(p)} {want} {n}\n')
    for k in sorted(set(keys)|set(first)): out.write(f'  {k:x} {rows[k].hex()}\n')
os.remove(sys.argv[1]+'.tmp')
