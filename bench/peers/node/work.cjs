// The job of a queue on Node: undici for the gateway, saxes for the check, then a file that is synced and renamed.
"use strict";

const fs = require("node:fs/promises");
const { SaxesParser } = require("saxes");
const { Pool } = require("undici");

const { GATEWAY_URL, UPLOADS_DIR, RESULTS_DIR, CONCURRENCY } = process.env;
const concurrency = Number(CONCURRENCY);
const gateway = new Pool(GATEWAY_URL, { connections: concurrency || 1 });
const BOUNDARY = "----5b1c1d9a7f6e4c0f9d2e8a7b6c5d4e3f";

function form(id, pdf) {
  const head =
    `--${BOUNDARY}\r\nContent-Disposition: form-data; name="mapping"\r\n\r\npt_simon_invoice_v1\r\n` +
    `--${BOUNDARY}\r\nContent-Disposition: form-data; name="pretty"\r\n\r\n1\r\n` +
    `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="${id}.pdf"\r\n` +
    `Content-Type: application/pdf\r\n\r\n`;
  return Buffer.concat([Buffer.from(head), pdf, Buffer.from(`\r\n--${BOUNDARY}--\r\n`)]);
}

function check(xml) {
  const parser = new SaxesParser();
  parser.on("error", (error) => {
    throw error;
  });
  parser.write(xml.toString("utf8")).close();
}

// After a power cut the file is complete or absent: the same steps as convertq's.
async function write(id, xml) {
  const temporary = `${RESULTS_DIR}/.${id}.part`;
  const file = await fs.open(temporary, "w");
  try {
    await file.writeFile(xml);
    await file.sync();
  } finally {
    await file.close();
  }
  await fs.rename(temporary, `${RESULTS_DIR}/${id}.xml`);
  const directory = await fs.open(RESULTS_DIR, "r");
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

async function convert(id) {
  const pdf = await fs.readFile(`${UPLOADS_DIR}/${id}.pdf`);
  const answer = await gateway.request({
    method: "POST",
    path: "/process",
    body: form(id, pdf),
    headers: {
      "content-type": `multipart/form-data; boundary=${BOUNDARY}`,
      accept: "application/xml",
      "x-correlation-id": id,
    },
  });
  const xml = Buffer.from(await answer.body.arrayBuffer());
  if (answer.statusCode !== 200) throw new Error(`the gateway answered ${answer.statusCode}`);
  check(xml);
  await write(id, xml);
}

// Runs `action` on every id, at most `concurrency` at a time.
async function convertAll(ids) {
  let next = 0;
  const loop = async () => {
    while (next < ids.length) await convert(ids[next++]);
  };
  await Promise.all(Array.from({ length: concurrency }, loop));
}

module.exports = { concurrency, convert, convertAll };
