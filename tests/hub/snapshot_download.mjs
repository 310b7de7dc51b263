// What @huggingface/hub makes of a hub: node snapshot_download.mjs PACKAGE HUB CACHE REPOSITORY
import { createRequire } from 'node:module';
const [directory, hubUrl, cacheDir, repo] = process.argv.slice(2);
const { snapshotDownload } = createRequire(import.meta.url)(directory);
console.log(await snapshotDownload({ repo, hubUrl, cacheDir }));
